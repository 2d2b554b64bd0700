//! PostgreSQL servers of the matrix's own, and disks that can fill up.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

/// A private server, ended with this value.
pub(crate) struct Server {
    folder: PathBuf,
    url: String,
}

/// What `scripts/postgres` answers where PostgreSQL cannot be had.
const UNAVAILABLE: i32 = 3;

impl Server {
    /// Starts one in `folder`; `None` if PostgreSQL cannot be had here.
    pub(crate) fn start(folder: &Path) -> anyhow::Result<Option<Self>> {
        let installed = script().arg("install").output().context("cannot run scripts/postgres")?;
        if installed.status.code() == Some(UNAVAILABLE) {
            return Ok(None);
        }
        // The server runs as another user, who has to get there.
        open_to_all(folder)?;
        let folder = folder.join("postgres");
        let url = call("start", &folder)?;
        Ok(Some(Self { folder, url }))
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// SIGKILL to all of its processes, and up again.
    pub(crate) async fn crash(&self) -> anyhow::Result<()> {
        let folder = self.folder.clone();
        blocking(move || call("kill", &folder).and_then(|_| call("restart", &folder))).await
    }

    /// Up again, whatever state it is in.
    pub(crate) async fn restart(&self) -> anyhow::Result<()> {
        let folder = self.folder.clone();
        blocking(move || call("restart", &folder)).await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = call("stop", &self.folder);
    }
}

/// A small disk of its own: memory that pretends to be one, unmounted with this value.
pub(crate) struct Disk {
    pub(crate) path: PathBuf,
}

impl Disk {
    /// `None` if this process may not mount anything.
    pub(crate) fn mount(path: PathBuf, mebibytes: u32) -> anyhow::Result<Option<Self>> {
        std::fs::create_dir_all(&path)?;
        let size = format!("size={mebibytes}m");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&path).output();
        if !mounted.is_ok_and(|mounted| mounted.status.success()) {
            return Ok(None);
        }
        open_to_all(&path)?;
        Ok(Some(Self { path }))
    }

    /// Takes all the room that is left.
    pub(crate) fn fill(&self) -> anyhow::Result<()> {
        use std::io::Write;
        let mut ballast = std::fs::File::create(self.ballast())?;
        let block = vec![0_u8; 64 * 1024];
        while ballast.write_all(&block).is_ok() {}
        while ballast.write_all(&[0]).is_ok() {}
        Ok(())
    }

    /// Gives it back.
    pub(crate) fn free(&self) -> anyhow::Result<()> {
        std::fs::remove_file(self.ballast()).context("cannot remove the ballast")
    }

    fn ballast(&self) -> PathBuf {
        self.path.join("ballast")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.path).output();
    }
}

fn open_to_all(folder: &Path) -> anyhow::Result<()> {
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o777)).context("cannot open a folder to all")
}

fn script() -> Command {
    Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/postgres"))
}

fn call(verb: &str, folder: &Path) -> anyhow::Result<String> {
    let output = script().arg(verb).arg(folder).output().context("cannot run scripts/postgres")?;
    if !output.status.success() {
        bail!("cannot {verb} the server: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> anyhow::Result<T> + Send + 'static) -> anyhow::Result<()> {
    tokio::task::spawn_blocking(work).await.context("a task broke down")??;
    Ok(())
}
