//! Servers of the matrix's own, and disks that can fill up.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, bail};

/// A private server, ended with this value.
#[derive(Debug)]
pub(crate) struct Server {
    /// Its name under `scripts/`.
    script: &'static str,
    folder: PathBuf,
    url: String,
}

/// What a script answers where its server cannot be had.
const UNAVAILABLE: i32 = 3;

impl Server {
    /// Starts PostgreSQL in `folder`; `None` if it cannot be had here.
    pub(crate) fn start(folder: &Path) -> anyhow::Result<Option<Self>> {
        Self::start_one("postgres", folder)
    }

    /// Starts the server of `scripts/SCRIPT` in `folder`; `None` if it cannot be had here.
    pub(crate) fn start_one(script: &'static str, folder: &Path) -> anyhow::Result<Option<Self>> {
        let installed = command(script).arg("install").output().with_context(|| cannot_run(script))?;
        if installed.status.code() == Some(UNAVAILABLE) {
            return Ok(None);
        }
        // The server runs as another user, who has to get there.
        open_to_all(folder)?;
        let folder = folder.join(script);
        let url = call(script, "start", &folder)?;
        Ok(Some(Self { script, folder, url }))
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Starts a standby of this one in a folder of this name beside it.
    pub(crate) async fn standby(&self, name: &str) -> anyhow::Result<Self> {
        let (script, primary) = (self.script, self.folder.clone());
        let folder = primary.with_file_name(name);
        let follows = folder.clone();
        let start = move || call_with(script, "follow", &[&follows, &primary]);
        let url = tokio::task::spawn_blocking(start).await.context("a task broke down")??;
        Ok(Self { script, folder, url })
    }

    /// SIGKILL to all of its processes, and up again.
    pub(crate) async fn crash(&self) -> anyhow::Result<()> {
        self.kill().await?;
        self.restart().await
    }

    /// SIGKILL to all of its processes.
    pub(crate) async fn kill(&self) -> anyhow::Result<()> {
        self.call("kill").await
    }

    /// Up again, whatever state it is in.
    pub(crate) async fn restart(&self) -> anyhow::Result<()> {
        self.call("restart").await
    }

    /// Anything else that its script can do.
    pub(crate) async fn call(&self, verb: &'static str) -> anyhow::Result<()> {
        let (script, folder) = (self.script, self.folder.clone());
        tokio::task::spawn_blocking(move || call(script, verb, &folder)).await.context("a task broke down")?.map(drop)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = call(self.script, "stop", &self.folder);
    }
}

/// Brokers of the matrix's own, each started when a row first needs it. They are killed, so nobody else uses them.
pub(crate) struct Brokers {
    folder: PathBuf,
    /// By the name of their script; `None` if one cannot be had.
    started: BTreeMap<&'static str, Option<Arc<Server>>>,
}

impl Brokers {
    pub(crate) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), started: BTreeMap::new() }
    }

    pub(crate) fn get(&mut self, script: &'static str) -> anyhow::Result<Option<Arc<Server>>> {
        if let Some(started) = self.started.get(script) {
            return Ok(started.clone());
        }
        let server = Server::start_one(script, &self.folder)?.map(Arc::new);
        self.started.insert(script, server.clone());
        Ok(server)
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

fn command(script: &str) -> Command {
    Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts").join(script))
}

fn cannot_run(script: &str) -> String {
    format!("cannot run scripts/{script}")
}

fn call(script: &str, verb: &str, folder: &Path) -> anyhow::Result<String> {
    call_with(script, verb, &[folder])
}

fn call_with(script: &str, verb: &str, folders: &[&Path]) -> anyhow::Result<String> {
    let output = command(script).arg(verb).args(folders).output().with_context(|| cannot_run(script))?;
    if !output.status.success() {
        bail!("cannot {verb} the server by scripts/{script}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
