//! Users, passwords and tokens with every printable character, from `${NAME}` in a file to the server that checks them.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

use std::path::Path;
use std::process::Output;

use oncebox_testkit::skipped;
use tokio::process::Command;

/// Every printable character of ASCII, between two words that no output may hold.
fn secret() -> String {
    format!("CANARY{}é日CANARY", (' '..='~').collect::<String>())
}

async fn oncebox(folder: &Path, words: &[&str], secret: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oncebox"));
    command.current_dir(folder).args(words).kill_on_drop(true);
    let output = command.env("SECRET", secret).env("ONCEBOX_LOG", "trace").output().await.unwrap();
    assert!(!told(&output).contains("CANARY"), "{words:?} tells a secret: {}", told(&output));
    output
}

fn told(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

async fn succeeds(folder: &Path, words: &[&str]) -> String {
    let output = oncebox(folder, words, &secret()).await;
    assert!(output.status.success(), "{words:?}: {}", told(&output));
    told(&output)
}

fn write(folder: &Path, store: &str, from: &str, rest: &str) {
    let text = format!(
        "[store]\nurl = \"{store}\"\n\n[[consumer]]\nname = \"c\"\nfrom = \"{from}\"\nbroker_retention = \"1d\"\n\n  \
         [[consumer.on]]\n  type = \"t\"\n  sql = \"select 1\"\n{rest}"
    );
    std::fs::write(folder.join("oncebox.toml"), text).unwrap();
}

fn script(name: &str, words: &[&str], authorization: Option<&str>) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts").join(name);
    let mut command = std::process::Command::new(script);
    if let Some(authorization) = authorization {
        command.env("ONCEBOX_NATS_AUTHORIZATION", authorization);
    }
    command.args(words).output().unwrap()
}

/// A server of its own, which is stopped whatever happens.
struct Server {
    script: &'static str,
    folder: tempfile::TempDir,
}

impl Server {
    fn start(name: &'static str, authorization: Option<&str>) -> (Self, String) {
        use std::os::unix::fs::PermissionsExt;
        let server = Self { script: name, folder: tempfile::tempdir().unwrap() };
        std::fs::set_permissions(server.folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let output = script(name, &["start", &server.place()], authorization);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        (server, String::from_utf8(output.stdout).unwrap().trim().to_owned())
    }

    fn place(&self) -> String {
        self.folder.path().display().to_string()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        script(self.script, &["stop", &self.place()], None);
    }
}

/// A role whose password is checked, on a server that trusts nobody else's word for it.
#[tokio::test]
async fn postgres_gets_the_password_that_the_variable_holds() {
    use sqlx::{AssertSqlSafe, Connection};
    if std::env::var("ONCEBOX_TEST_POSTGRES_URL").is_err() {
        return skipped("credentials::postgres_gets_the_password_that_the_variable_holds");
    }
    let (server, url) = Server::start("postgres", None);
    let mut db = sqlx::PgConnection::connect(&url).await.unwrap();
    let quoted = secret().replace('\'', "''");
    let role = format!("create role \"CANARY role\" superuser login password '{quoted}'");
    sqlx::raw_sql(AssertSqlSafe(role)).execute(&mut db).await.unwrap();
    let hba = server.folder.path().join("data/pg_hba.conf");
    let trusting = std::fs::read_to_string(&hba).unwrap();
    std::fs::write(&hba, format!("host all \"CANARY role\" 127.0.0.1/32 scram-sha-256\n{trusting}")).unwrap();
    sqlx::query("select pg_reload_conf()").execute(&mut db).await.unwrap();
    let (_, place) = url.split_once('@').unwrap();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for store in [
        format!("postgres://CANARY%20role:${{SECRET}}@{place}"),
        format!("postgres://{place}?user=CANARY%20role&password=${{SECRET}}"),
    ] {
        write(folder, &store, "queue:q", "");
        for words in [&["schema", "up"][..], &["run", "--check"], &["send"], &["status"], &["doctor"]] {
            succeeds(folder, words).await;
        }
    }
    for words in [&["schema", "check"][..], &["run", "--check"], &["send"], &["status"], &["doctor"]] {
        let output = oncebox(folder, words, "CANARY@wrong/").await;
        assert!(!output.status.success(), "{words:?}: a wrong password is taken for the right one");
    }
}

/// Each of doctor, send and run, against a server that asks for a user and a password, and one that asks for a token.
#[cfg(feature = "brokers")]
#[tokio::test(flavor = "multi_thread")]
async fn nats_gets_the_user_and_password_or_the_token() {
    use async_nats::jetstream::{self, stream};
    use oncebox_testkit::eventually;
    if std::env::var("ONCEBOX_TEST_NATS_URL").is_err() {
        return skipped("credentials::nats_gets_the_user_and_password_or_the_token");
    }
    let quoted = secret().replace('\\', "\\\\").replace('"', "\\\"");
    let options = async_nats::ConnectOptions::new;
    for (authorization, user, client) in [
        (
            format!("user: \"CANARY\", password: \"{quoted}\""),
            "CANARY:${SECRET}",
            options().user_and_password("CANARY".into(), secret()),
        ),
        (format!("token: \"{quoted}\""), "${SECRET}", options().token(secret())),
    ] {
        let (_server, url) = Server::start("nats", Some(&authorization));
        let made = jetstream::new(client.connect(&url).await.unwrap());
        for name in ["S", "out"] {
            let config = stream::Config { name: name.into(), subjects: vec![name.into()], ..stream::Config::default() };
            made.create_stream(config).await.unwrap();
        }
        let address = url.replacen("://", &format!("://{user}@"), 1);
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let rest = format!("  emit = [{{ type = \"e\", topic = \"out\" }}]\n\n[relay]\nto = \"{address}\"\n");
        write(folder, "sqlite://x.db", &format!("{address}/S"), &rest);
        let file = std::fs::read_to_string(folder.join("oncebox.toml")).unwrap();
        std::fs::write(
            folder.join("oncebox.toml"),
            file.replace("broker_retention", "create = true\nbroker_retention"),
        )
        .unwrap();
        succeeds(folder, &["schema", "up"]).await;
        succeeds(folder, &["doctor"]).await;
        assert!(succeeds(folder, &["send", "--payload", "{}"]).await.contains("1 message to"));
        // The source and the sink of a running pipeline.
        let log = std::fs::File::create(folder.join("log")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_oncebox"));
        command.current_dir(folder).arg("run").kill_on_drop(true).env("SECRET", secret()).env("ONCEBOX_LOG", "trace");
        let mut child = command.stderr(log).spawn().unwrap();
        let out = made.get_stream("out").await.unwrap();
        eventually("what it emits is published", async || out.get_info().await.unwrap().state.messages == 1).await;
        child.kill().await.unwrap();
        let said = std::fs::read_to_string(folder.join("log")).unwrap();
        assert!(said.contains("consumer starts") && !said.contains("CANARY"), "{said}");
        for words in [&["doctor"][..], &["send", "--payload", "{}"]] {
            let output = oncebox(folder, words, "CANARY@wrong/").await;
            assert!(!output.status.success(), "{words:?}: a wrong secret is taken for the right one");
            assert!(told(&output).contains("credentials"), "{words:?}: {}", told(&output));
        }
    }
}

/// What goes over the wire to a server that only listens.
#[cfg(feature = "brokers")]
#[tokio::test(flavor = "multi_thread")]
async fn rabbitmq_gets_the_user_and_password() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write(folder, "sqlite://x.db", &format!("amqp://${{SECRET}}:${{SECRET}}@127.0.0.1:{port}/v/q"), "");
    succeeds(folder, &["schema", "up"]).await;
    let wanted = format!("\0{0}\0{0}", secret()).into_bytes();
    // Connection.Start: version 0.9, no properties, PLAIN, en_US.
    let mut start = vec![0, 10, 0, 10, 0, 9, 0, 0, 0, 0, 0, 0, 0, 5];
    start.extend(b"PLAIN\0\0\0\x05en_US");
    let mut frame = vec![1, 0, 0, 0, 0, 0, u8::try_from(start.len()).unwrap()];
    frame.extend(start);
    frame.push(0xce);
    let serve = async {
        let (mut connection, _) = listener.accept().await.unwrap();
        // A server answers what a client says first.
        let mut header = [0; 8];
        connection.read_exact(&mut header).await.unwrap();
        connection.write_all(&frame).await.unwrap();
        let mut got = Vec::new();
        while !got.windows(wanted.len()).any(|part| part == wanted) {
            let read = connection.read_buf(&mut got).await.unwrap();
            assert_ne!(read, 0, "it ended without the password: {got:?}");
        }
    };
    // Once it has the password it closes the connection, and the command ends.
    let secret = secret();
    let (output, ()) = tokio::join!(oncebox(folder, &["send", "--payload", "{}"], &secret), serve);
    assert!(!output.status.success());
}
