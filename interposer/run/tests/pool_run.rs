//! Runs the built `pool-run` from a directory of its own, with a shell script in the place of `pool-server` and an empty
//! library in the place of the interposer: what is tested is what the program beside it sees.
#![allow(missing_docs)]

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// What the real server does, as far as pool-run sees it. `server.pid` tells the test that it ran, and which process.
const SERVER: &str = r#"#!/bin/sh
here=$(dirname "$0")
echo $$ > "$here/server.pid"
printf '%s\n' "$@" > "$here/server.arguments"
env > "$here/server.environment"
while [ $# -gt 0 ]; do
  case "$1" in --ready-fd) fd=$2 ;; --socket) socket=$2 ;; esac
  shift
done
# The pipe closes before the reason is said.
if [ -e "$here/fail" ]; then eval "exec $fd>&-"; sleep 0.2; echo "no driver here" >&2; exit 1; fi
if [ -e "$here/hang" ]; then exec sleep 60; fi
eval "echo 'listening unix=$socket tcp=127.0.0.1:4321' >&$fd; exec $fd>&-"
exec sleep 60
"#;

struct Install {
    directory: tempfile::TempDir,
}

impl Install {
    fn new() -> Install {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::copy(env!("CARGO_BIN_EXE_pool-run"), at("pool-run")).unwrap();
        std::fs::write(at("pool-server"), SERVER).unwrap();
        std::fs::set_permissions(at("pool-server"), std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::create_dir(at("gpupool")).unwrap();
        std::fs::create_dir(at("tmp")).unwrap();
        let built = Command::new("cc")
            .args(["-shared", "-x", "c", "/dev/null", "-o"])
            .arg(at("gpupool/libcuda.so.1"))
            .status()
            .unwrap();
        assert!(built.success());
        Install { directory }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.at("pool-run"));
        command.args(arguments).env("TMPDIR", self.at("tmp")).stdin(Stdio::null());
        // What is configured on this machine is not what is tested.
        command.env("GPUPOOL_CONFIG", "/dev/null");
        for name in [
            "LD_PRELOAD",
            "LD_LIBRARY_PATH",
            "GPUPOOL_SERVER",
            "GPUPOOL_TRANSPORT",
            "GPUPOOL_TOKEN",
            "GPUPOOL_LOG",
        ] {
            command.env_remove(name);
        }
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.at(name)).unwrap()
    }

    /// Nothing is left of a private server: no process, no directory.
    fn assert_clean(&self) {
        assert_eq!(
            std::fs::read_dir(self.at("tmp")).unwrap().count(),
            0,
            "a private directory was left behind"
        );
        let pid = self.read("server.pid");
        within(Duration::from_secs(5), "the server is still there", || !is_running(pid.trim()));
    }
}

fn is_running(pid: &str) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid).join("stat")).unwrap_or_default();
    // A zombie whose parent has not looked yet has ended all the same.
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

fn within(limit: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn without_a_server_it_fails_and_names_embedded() {
    let output = Install::new().run(&["--", "true"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(output.stdout.is_empty());
    let error = text(&output.stderr);
    assert!(error.contains("--embedded") && error.contains("GPUPOOL_SERVER"), "{error}");
}

#[test]
fn without_an_interposer_it_says_where_it_looked() {
    let install = Install::new();
    std::fs::remove_file(install.at("gpupool/libcuda.so.1")).unwrap();
    let output = install.run(&["--server", "h:1", "--", "true"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("/gpupool"), "{}", text(&output.stderr));
}

#[test]
fn it_finds_an_installed_interposer() {
    let install = Install::new();
    std::fs::create_dir_all(install.at("bin")).unwrap();
    std::fs::create_dir_all(install.at("lib")).unwrap();
    std::fs::rename(install.at("pool-run"), install.at("bin/pool-run")).unwrap();
    std::fs::rename(install.at("gpupool"), install.at("lib/gpupool")).unwrap();
    let mut command = Command::new(install.at("bin/pool-run"));
    let output = command
        .args(["--server", "h:1", "--", "sh", "-c", "echo $LD_PRELOAD"])
        .env_remove("LD_PRELOAD")
        .output()
        .unwrap();
    let expected = install.directory.path().canonicalize().unwrap().join("lib/gpupool/libcuda.so.1");
    assert_eq!(text(&output.stdout).trim(), expected.display().to_string());
}

#[test]
fn the_environment_of_the_program() {
    let install = Install::new();
    std::fs::write(install.at("token-file"), "secret").unwrap();
    std::fs::set_permissions(install.at("token-file"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let script = "echo \"$LD_PRELOAD|$LD_LIBRARY_PATH|$GPUPOOL_SERVER|$GPUPOOL_TRANSPORT|$GPUPOOL_TOKEN_FILE|$GPUPOOL_TOKEN\"";
    let mut command = install.command(&[
        "--server",
        "unix:s",
        "--transport",
        "tcp",
        "--token-file",
        "token-file",
        "--",
        "sh",
        "-c",
        script,
    ]);
    // An existing entry stays behind ours; libc.so.6 is loaded in any case.
    command.env("LD_PRELOAD", "libc.so.6").env("LD_LIBRARY_PATH", "/nowhere").env("GPUPOOL_TOKEN", "old");
    let output = command.current_dir(install.directory.path()).output().unwrap();
    let root = install.directory.path().canonicalize().unwrap();
    let root = root.display();
    let expected = format!(
        "{root}/gpupool/libcuda.so.1:libc.so.6|{root}/gpupool:/nowhere|unix:{root}/s|tcp|{root}/token-file|"
    );
    assert_eq!(text(&output.stdout).trim(), expected, "{}", text(&output.stderr));
}

#[test]
fn it_becomes_the_program() {
    let install = Install::new();
    let child = install
        .command(&["--server", "h:1", "--", "sh", "-c", "echo $$; exit 7"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(text(&output.stdout).trim(), pid.to_string(), "not the same process");
}

#[test]
fn programs_that_do_not_start() {
    let install = Install::new();
    std::fs::write(install.at("not-executable"), "x").unwrap();
    let not_executable = install.at("not-executable").display().to_string();
    for mode in [&["--server", "h:1"][..], &["--embedded"][..]] {
        let run = |program: &str| install.run(&[mode, &["--", program]].concat());
        let output = run("no-such-program-here");
        assert_eq!(output.status.code(), Some(127), "{mode:?}");
        assert!(text(&output.stderr).contains("no-such-program-here"));
        assert_eq!(run(&not_executable).status.code(), Some(126), "{mode:?}");
    }
    install.assert_clean();
}

#[test]
fn wrong_arguments() {
    let install = Install::new();
    for arguments in [
        &["--server", "nothing", "--", "true"][..],
        &["--server", "h:1", "--embedded", "--", "true"],
        &["--server", "h:1", "--transport", "pigeon", "--", "true"],
        &["--server", "h:1", "--token-file", "/no/such/file", "--", "true"],
        &["--embedded"],
    ] {
        let output = install.run(arguments);
        assert_eq!(output.status.code(), Some(125), "{arguments:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{arguments:?}");
    }
    let output = install
        .command(&["--server", "h:1", "--", "true"])
        .env("GPUPOOL_TRANSPORT", "pigeon")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125));
}

#[test]
fn embedded_starts_a_server_and_cleans_up() {
    let install = Install::new();
    let script =
        "echo $GPUPOOL_SERVER; stat -c %a $(dirname ${GPUPOOL_SERVER#unix:}); echo $GPUPOOL_TOKEN; exit 3";
    let mut command = install.command(&["--embedded", "--", "sh", "-c", script]);
    let output = command.env("GPUPOOL_TOKEN", "another-servers").output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    let arguments = install.read("server.arguments");
    let arguments: Vec<&str> = arguments.lines().collect();
    let value = |flag: &str| arguments[arguments.iter().position(|argument| *argument == flag).unwrap() + 1];
    assert_eq!(arguments[0], "serve");
    assert_eq!(
        (value("--driver"), value("--listen"), value("--config")),
        ("soft", "127.0.0.1:0", "/dev/null")
    );
    assert_eq!(text(&output.stdout), format!("unix:{}\n700\n\n", value("--socket")));
    assert!(!install.read("server.environment").contains("LD_PRELOAD="));
    install.assert_clean();
}

#[test]
fn embedded_over_tcp_uses_the_port() {
    let install = Install::new();
    let output = install.run(&[
        "--embedded",
        "--transport",
        "tcp",
        "--",
        "sh",
        "-c",
        "echo $GPUPOOL_SERVER $GPUPOOL_TRANSPORT",
    ]);
    assert_eq!(text(&output.stdout).trim(), "127.0.0.1:4321 tcp");
    install.assert_clean();
}

#[test]
fn embedded_passes_a_death_by_signal_on() {
    let install = Install::new();
    for signal in [libc::SIGTERM, libc::SIGKILL, libc::SIGSEGV] {
        let output = install.run(&["--embedded", "--", "sh", "-c", &format!("kill -{signal} $$")]);
        assert_eq!(output.status.signal(), Some(signal));
        install.assert_clean();
    }
}

#[test]
fn embedded_forwards_signals() {
    let install = Install::new();
    let script = "trap 'echo got usr1' USR1; trap 'echo got term; exit 9' TERM; echo ready; while :; do sleep 0.05; done";
    let mut child =
        install.command(&["--embedded", "--", "sh", "-c", script]).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut next = || {
        let mut line = String::new();
        std::io::BufRead::read_line(&mut out, &mut line).unwrap();
        line.trim().to_owned()
    };
    assert_eq!(next(), "ready");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::USR1).unwrap();
    assert_eq!(next(), "got usr1");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(next(), "got term");
    assert_eq!(child.wait().unwrap().code(), Some(9));
    install.assert_clean();
}

#[test]
fn embedded_stops_and_continues_with_its_program() {
    let install = Install::new();
    let mut child = install
        .command(&["--embedded", "--", "sh", "-c", "echo $$; kill -STOP $$; exit 4"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let stat = format!("/proc/{}/stat", child.id());
    within(Duration::from_secs(10), "pool-run did not stop with its program", || {
        std::fs::read_to_string(&stat).unwrap().rsplit_once(')').unwrap().1.trim_start().starts_with('T')
    });
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::CONT)
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(4));
    install.assert_clean();
}

#[test]
fn embedded_killed_takes_server_and_program_with_it() {
    let install = Install::new();
    let mut child = install
        .command(&["--embedded", "--", "sh", "-c", "echo $$; exec sleep 60"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line)
        .unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    within(Duration::from_secs(5), "the program lives on", || !is_running(line.trim()));
    // The directory is swept by the next one.
    let output = install.run(&["--embedded", "--", "true"]);
    assert!(output.status.success());
    install.assert_clean();
}

#[test]
fn embedded_reports_a_server_that_fails() {
    let install = Install::new();
    std::fs::write(install.at("fail"), "").unwrap();
    let output = install.run(&["--embedded", "--", "echo", "ran"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(output.stdout.is_empty(), "the program ran without its server");
    assert!(text(&output.stderr).contains("no driver here"), "{}", text(&output.stderr));
    install.assert_clean();
}

#[test]
fn embedded_interrupted_while_the_server_starts() {
    let install = Install::new();
    std::fs::write(install.at("hang"), "").unwrap();
    let mut child =
        install.command(&["--embedded", "--", "echo", "ran"]).stdout(Stdio::piped()).spawn().unwrap();
    within(Duration::from_secs(10), "no server", || {
        install.at("server.pid").exists() && !install.read("server.pid").is_empty()
    });
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM)
        .unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
    install.assert_clean();
}
