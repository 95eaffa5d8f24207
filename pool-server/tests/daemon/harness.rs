//! A daemon in this process or in its own, clients, and the stand-in worker.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use gpupool_protocol::config::ClientConfig;
use gpupool_protocol::control::*;
use pool_server::daemon::process::WorkerProgram;
use pool_server::daemon::ready::ReadyFd;
use pool_server::daemon::{Daemon, DaemonConfig};
use pool_server::worker::{Data, Work, WorkerSetup};

const ROLE: &str = "POOL_TEST_ROLE";
/// Marks the processes of one daemon, by its socket.
const MARK: &str = "POOL_TEST_SOCKET";

/// Becomes what the variable says, or returns where there is none.
pub fn play_role() {
    match std::env::var(ROLE).as_deref() {
        Ok("worker") => {
            pool_server::worker::main::<StandIn>().expect("the worker's shell");
        }
        Ok("daemon") => {
            let ready = std::env::var("POOL_TEST_READY").unwrap().parse().unwrap();
            let ready = ReadyFd::inherited(ready).unwrap();
            let socket: PathBuf = std::env::var_os(MARK).unwrap().into();
            pool_server::cli::serve(daemon_config(socket), Some(ready)).expect("the daemon");
            std::process::exit(0);
        }
        Ok("client") => client_process(),
        _ => {}
    }
}

/// This test program, in another role.
fn own_program(role: &str) -> WorkerProgram {
    WorkerProgram {
        path: std::env::current_exe().unwrap(),
        args: ["role", "--exact", "--nocapture", "--quiet"].map(Into::into).to_vec(),
        env: vec![(ROLE.into(), role.into())],
    }
}

fn own_command(role: &str) -> Command {
    let program = own_program(role);
    let mut command = Command::new(program.path);
    command.args(program.args).envs(program.env);
    command
}

fn daemon_config(socket: PathBuf) -> DaemonConfig {
    let mut worker = own_program("worker");
    worker.env.push((MARK.into(), socket.clone().into()));
    DaemonConfig {
        driver: "/stand-in/good".into(),
        socket: Some(socket),
        listen: Some("127.0.0.1:0".parse().unwrap()),
        token_file: None,
        insecure: false,
        allow_anonymous_loopback: false,
        max_sessions: 8,
        warm_workers: 1,
        worker,
    }
}

/// What the stand-in worker does: it answers single bytes on the data connection.
struct StandIn;

impl Work for StandIn {
    type Driver = ();

    fn open(path: &Path) -> anyhow::Result<()> {
        match path.file_name().and_then(|n| n.to_str()) {
            Some("broken") => anyhow::bail!("told to be broken"),
            Some("crash") => std::process::abort(),
            _ => {
                // Kept for `inventory`, which sees no path.
                EMPTY.store(path.ends_with("empty"), std::sync::atomic::Ordering::Relaxed);
                Ok(())
            }
        }
    }

    fn inventory((): &()) -> anyhow::Result<Snapshot> {
        let device = DeviceInfo { name: "stand-in".into(), total_memory: 1 << 30, ..DeviceInfo::default() };
        let empty = EMPTY.load(std::sync::atomic::Ordering::Relaxed);
        let devices = if empty { vec![] } else { vec![device] };
        Ok(Snapshot { driver_version: 12345, devices, calls: vec![0b1000] })
    }

    fn run(setup: WorkerSetup<()>, data: Data) -> anyhow::Result<()> {
        assert_eq!(setup.session.devices, [0]);
        assert_eq!(setup.session.client.program, "test");
        let more = data.more.len() as u8;
        let mut data: Box<dyn ReadWrite> = match data.first {
            DataSocket::Unix(s) => Box::new(s),
            DataSocket::Tcp(s) => Box::new(s),
        };
        let mut byte = [0];
        loop {
            if data.read(&mut byte)? == 0 {
                return Ok(());
            }
            match byte[0] {
                b'?' => data.write_all(&[setup.transport as u8])?,
                b'P' => data.write_all(&std::process::id().to_le_bytes())?,
                b'C' => {
                    let child = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn()?;
                    data.write_all(&child.id().to_le_bytes())?;
                }
                // How many further connections it has.
                b'N' => data.write_all(&[more])?,
                // Finds no memory, and says so.
                b'M' => {
                    setup.others.make_room(0);
                    data.write_all(b"m")?;
                }
                b'B' => data.write_all(&vec![0xB5; BULK])?,
                b'L' => loop {
                    std::thread::sleep(Duration::from_secs(1));
                },
                b'A' => std::process::abort(),
                b'E' => return Err(anyhow::anyhow!("by the test").context("told to fail")),
                b'X' => std::process::exit(7),
                other => anyhow::bail!("the test said {other}"),
            }
        }
    }
}

/// More than the buffers of a TCP connection hold.
pub const BULK: usize = 64 << 20;

static EMPTY: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

trait ReadWrite: Read + Write {}
impl<T: Read + Write> ReadWrite for T {}

/// A daemon inside this process, on a thread of its own.
pub struct Server {
    socket: PathBuf,
    address: SocketAddr,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
    _dir: tempfile::TempDir,
}

impl Server {
    pub fn start(change: impl FnOnce(&mut DaemonConfig)) -> Self {
        Self::try_start(change).unwrap()
    }

    pub fn try_start(change: impl FnOnce(&mut DaemonConfig)) -> anyhow::Result<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mut config = daemon_config(dir.path().join("pool.sock"));
        change(&mut config);
        let (started, start) = mpsc::channel();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            runtime.block_on(async {
                match Daemon::start(config).await {
                    Ok(daemon) => {
                        let places = (daemon.socket().unwrap().to_owned(), daemon.address().unwrap());
                        started.send(Ok(places)).unwrap();
                        daemon.run_until(async { drop(stopped.await) }).await;
                    }
                    Err(error) => started.send(Err(error)).unwrap(),
                }
            });
        });
        let (socket, address) = start.recv().unwrap()?;
        Ok(Self { socket, address, stop: Some(stop), thread: Some(thread), _dir: dir })
    }

    pub fn socket(&self) -> PathBuf {
        self.socket.clone()
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn unix(&self) -> ClientConfig {
        unix_config(&self.socket)
    }

    pub fn tcp(&self) -> ClientConfig {
        tcp_config(self.address)
    }

    /// Its workers.
    pub fn workers(&self) -> Vec<u32> {
        processes_of(&self.socket)
    }

    /// Waits until `count` workers are warm: the same ones for a while, since one that made the inventory when the daemon
    /// started, or that is still being started, counts as a process too.
    pub fn wait_for_warm(&self, count: usize) -> Vec<u32> {
        let mut seen = (Vec::new(), Instant::now());
        wait_until("the pool is full", Duration::from_secs(20), || {
            let now = self.workers();
            if now != seen.0 {
                seen = (now, Instant::now());
            }
            seen.0.len() == count && seen.1.elapsed() > Duration::from_millis(300)
        });
        seen.0
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().map(|t| t.join());
        if !std::thread::panicking() {
            ended.unwrap().unwrap();
            assert!(!self.socket.exists());
        }
    }
}

fn unix_config(socket: &Path) -> ClientConfig {
    let server = format!("unix:{}", socket.display()).parse().unwrap();
    ClientConfig { server: Some(server), ..ClientConfig::default() }
}

fn tcp_config(address: SocketAddr) -> ClientConfig {
    ClientConfig { server: Some(address.to_string().parse().unwrap()), ..ClientConfig::default() }
}

/// A daemon in a process of its own.
pub struct DaemonProcess {
    child: Child,
    pub socket: PathBuf,
    address: SocketAddr,
    _dir: tempfile::TempDir,
}

impl DaemonProcess {
    pub fn start(environment: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("pool.sock");
        // Not close-on-exec: it is meant to be inherited.
        let (read, write) = rustix::pipe::pipe().unwrap();
        let mut command = own_command("daemon");
        command.env(MARK, &socket).envs(environment.iter().copied());
        command.env("POOL_TEST_READY", std::os::fd::AsRawFd::as_raw_fd(&write).to_string());
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        drop(write);
        let mut line = String::new();
        BufReader::new(std::fs::File::from(read)).read_line(&mut line).unwrap();
        let words: Vec<&str> = line.trim_end().split(' ').collect();
        let &["listening", unix, tcp] = words.as_slice() else { panic!("{line:?}") };
        assert_eq!(unix, format!("unix={}", socket.display()));
        let address = tcp.strip_prefix("tcp=").unwrap().parse().unwrap();
        Self { child, socket, address, _dir: dir }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn unix(&self) -> ClientConfig {
        unix_config(&self.socket)
    }

    pub fn tcp(&self) -> ClientConfig {
        tcp_config(self.address)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for its end; the exit status, or none if a signal ended it.
    pub fn wait(&mut self) -> Option<i32> {
        let mut status = None;
        wait_until("the daemon ends", Duration::from_secs(8), || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.and_then(|s| s.code())
    }

    /// Processes that it started and that are still there.
    pub fn left_behind(&self) -> usize {
        processes_of(&self.socket).iter().filter(|pid| **pid != self.pid()).count()
    }
}

impl Drop for DaemonProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Processes that carry a daemon's mark in their environment.
fn processes_of(socket: &Path) -> Vec<u32> {
    let mark = format!("{MARK}={}", socket.display());
    let numbers =
        std::fs::read_dir("/proc").unwrap().filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok());
    let carries = |pid: &u32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|b| *b == 0).any(|variable| variable == mark.as_bytes())
    };
    numbers.filter(carries).collect()
}

/// What the tests ask for.
pub fn request(config: &ClientConfig) -> Open {
    Open {
        client: ClientInfo { program: "test".into(), pid: std::process::id(), ..ClientInfo::default() },
        token: config.token.clone(),
        needs: config.needs.clone(),
        architectures: vec!["sm_90".into()],
        transports: vec![Transport::Shm, Transport::Tcp],
    }
}

/// A client's session in this process.
#[derive(Debug)]
pub struct Session {
    pub control: Control,
    pub opened: Opened,
    pub path: DataPath,
}

impl Session {
    pub fn open(config: &ClientConfig) -> Result<Self, ConnectError> {
        let deadline = Instant::now() + Duration::from_secs(8);
        let mut control = connect(config, deadline)?;
        let opened = control.open(config, &request(config), deadline)?;
        let path = control.attach(config, &opened, deadline)?;
        Ok(Self { control, opened, path })
    }

    fn data(&mut self) -> &mut dyn ReadWrite {
        match &mut self.path.socket {
            DataSocket::Unix(s) => {
                s.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
                s
            }
            DataSocket::Tcp(s) => {
                s.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
                s
            }
        }
    }

    /// Tells the stand-in to do something.
    pub fn say(&mut self, order: u8) {
        self.data().write_all(&[order]).unwrap();
    }

    /// And reads a byte of answer.
    pub fn ask(&mut self, order: u8) -> u8 {
        self.say(order);
        self.hear()
    }

    /// Reads a byte.
    pub fn hear(&mut self) -> u8 {
        let mut answer = [0];
        self.data().read_exact(&mut answer).unwrap();
        answer[0]
    }

    /// And reads a process id.
    pub fn ask_pid(&mut self, order: u8) -> u32 {
        self.say(order);
        let mut answer = [0; 4];
        self.data().read_exact(&mut answer).unwrap();
        u32::from_le_bytes(answer)
    }

    /// And reads a long answer.
    pub fn read_bulk(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; BULK];
        self.data().read_exact(&mut bytes).unwrap();
        bytes
    }

    pub fn worker_pid(&mut self) -> u32 {
        self.ask_pid(b'P')
    }

    /// The next thing that comes over the control connection.
    pub fn event(&mut self) -> std::io::Result<Event> {
        wait_event(&mut self.control, Duration::from_secs(5))
    }
}

/// Waits as the interposer's watcher does.
pub fn wait_event(control: &mut Control, limit: Duration) -> std::io::Result<Event> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    loop {
        if let Some(event) = control.receive()? {
            return Ok(event);
        }
        let limit = Timespec::try_from(limit).unwrap();
        let ready = poll(&mut [PollFd::new(&control.as_fd(), PollFlags::IN)], Some(&limit)).unwrap();
        assert_eq!(ready, 1, "nothing came");
    }
}

/// A client in a process of its own: prints its worker's id, then answers lines.
pub struct Client {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Client {
    pub fn start(config: &ClientConfig) -> Self {
        let mut command = own_command("client");
        command.env("POOL_TEST_SERVER", config.server.as_ref().unwrap().to_string());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn say(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    /// The next line that begins with `> `; the test framework prints others.
    pub fn line(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the client has ended");
            if let Some((_, ours)) = line.trim_end().split_once("> ") {
                return ours.into();
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn client_process() {
    let server = std::env::var("POOL_TEST_SERVER").unwrap().parse().unwrap();
    let config = ClientConfig { server: Some(server), ..ClientConfig::default() };
    let mut session = Session::open(&config).unwrap();
    say_line(&session.worker_pid().to_string());
    for line in std::io::stdin().lines() {
        assert_eq!(line.unwrap(), "ask");
        session.control.send_ping(3).unwrap();
        assert_eq!(session.event().unwrap(), Event::Pong { n: 3 });
        assert_eq!(session.ask(b'?'), session.path.transport as u8);
        say_line("answered");
    }
}

/// Past the test framework, which keeps what tests print.
fn say_line(line: &str) {
    let mut out = std::io::stdout();
    writeln!(out, "> {line}").unwrap();
    out.flush().unwrap();
}

/// Is it running, or waiting to be collected?
pub fn exists(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// Is it running?
pub fn alive(pid: u32) -> bool {
    state(&format!("/proc/{pid}/stat")).is_some_and(|state| state != 'Z')
}

fn state(stat: &str) -> Option<char> {
    std::fs::read_to_string(stat).ok()?.rsplit_once(") ")?.1.chars().next()
}

/// Stops a process and waits until all its threads have: the signal is dealt with by one of them first.
pub fn freeze(pid: u32) {
    kill(pid, libc::SIGSTOP);
    wait_until("it has stopped", Duration::from_secs(5), || {
        let mut threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        threads.all(|t| state(t.unwrap().path().join("stat").to_str().unwrap()) == Some('T'))
    });
}

pub fn kill(pid: u32, signal: i32) {
    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
    let signal = rustix::process::Signal::from_named_raw(signal).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

#[track_caller]
pub fn wait_until(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + limit;
    while !holds() {
        assert!(Instant::now() < end, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub fn write_private(path: &Path, content: &str) {
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).unwrap();
    file.write_all(content.as_bytes()).unwrap();
}

/// The next message on a raw connection.
pub fn read_message(stream: &mut impl Read) -> ServerMessage {
    let mut head = [0; 4];
    stream.read_exact(&mut head).unwrap();
    let mut body = vec![0; frame_length(head, MESSAGE_MAX).unwrap()];
    stream.read_exact(&mut body).unwrap();
    decode(&body).unwrap()
}

/// Reads the server's greeting from a raw connection on which the preamble was sent.
pub fn read_greeting(stream: &mut impl Read) -> Hello {
    let mut theirs = [0; PREAMBLE_LEN];
    stream.read_exact(&mut theirs).unwrap();
    read_preamble(theirs).unwrap();
    match read_message(stream) {
        ServerMessage::Hello(hello) => hello,
        other => panic!("{other:?}"),
    }
}

/// The control connection of an open session, as a bare socket.
pub fn raw_session(socket: &Path) -> UnixStream {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(&preamble()).unwrap();
    let open = request(&unix_config(socket));
    stream.write_all(&encode(&ClientMessage::Open(Box::new(open))).unwrap()).unwrap();
    read_greeting(&mut stream);
    let answer = read_message(&mut stream);
    assert!(matches!(answer, ServerMessage::Opened(_)), "{answer:?}");
    stream
}
