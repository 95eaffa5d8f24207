//! `pool-bench crowd`: many clients at once — how long a session takes to set up, how fair clients share, and what a session
//! costs in memory.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use bench_driver::Driver;

use crate::bars::{self, Bar, ratio, time};
use crate::latency::machine;
use crate::memory;
use crate::programs::{Programs, Road};
use crate::server::Server;

/// How long all clients together may take to become ready, and to answer.
const LIMIT: Duration = Duration::from_secs(120);
/// Memsets of one step.
pub const STEP: u32 = 300;
/// Clients that work side by side, and how often: they and bare pairs take turns.
const MANY: u16 = 16;
const ROUNDS: usize = 5;

/// Bytes of a large copy in a session whose memory is measured.
const LARGE: usize = 16 << 20;

/// The arguments of `pool-bench crowd`.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    gate: bars::Gate,

    /// The private server's driver
    #[arg(long, value_name = "soft|null|LIBRARY", default_value = "null")]
    driver: String,

    /// Clients that start together
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..=2000))]
    clients: u16,

    /// Sessions that are set up one after the other, of each transport
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    sessions: u16,

    /// Seconds that clients work side by side
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=600))]
    seconds: u16,
}

/// Measures and prints.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let programs = Programs::find()?;
    let driver = programs.driver(&arguments.driver)?;
    let most = (arguments.clients + 100).to_string();
    let server = Server::start(&programs, &driver, &["--max-sessions", &most, "--warm-workers", "4"])?;
    let start = |road: Road, action: &str, rest: &[&str]| -> anyhow::Result<Client> {
        let mut command = programs.own_command(road, &driver, &server.address(road), action)?;
        Client::start(command.args(rest))
    };
    println!("Machine: {}\nDriver: {}\n", machine(), arguments.driver);
    let mut bars = Vec::new();

    for (road, aim) in [(Road::Shm, 3e6), (Road::Tcp, 10e6)] {
        let mut all = Vec::new();
        for _ in 0..arguments.sessions {
            let mut client = start(road, "client-init", &[])?;
            client.go()?;
            all.push(client.number()?);
            client.end()?;
            // The next warm worker may be there by then, as between users' programs.
            std::thread::sleep(Duration::from_millis(60));
        }
        let (p50, p99) = (quantile(&mut all, 0.5), quantile(&mut all, 0.99));
        let name = road.name();
        bars.push(Bar::at_most(&format!("set-up, {name}, p50 (aim)"), p50 as f64, aim, time));
        println!("set-up, {name}: p50 {}, p99 {}", time(p50 as f64), time(p99 as f64));
    }

    let (failed, mut all) = together(arguments.clients, || start(Road::Shm, "client-init", &[]))?;
    let p99 = quantile(&mut all, 0.99);
    println!("{} clients together: {failed} failed, p99 {}", arguments.clients, time(p99 as f64));
    bars.push(Bar::at_most(
        "clients together, p99",
        if failed == 0 { p99 as f64 } else { f64::MAX },
        2e9,
        time,
    ));

    let seconds = arguments.seconds.to_string();
    let work = || start(Road::Shm, "client-work", &[&seconds]);
    let steps = |clients| -> anyhow::Result<Vec<u64>> {
        let (failed, all) = together(clients, work)?;
        ensure!(failed == 0, "{failed} of {clients} clients failed");
        Ok(all)
    };
    let alone = steps(1)?[0] as f64;
    let worst = |all: &[u64]| all.iter().copied().min().unwrap_or(0) as f64;
    let two = worst(&steps(2)?) / alone;
    bars.push(Bar::at_least("two clients, the slower one to one alone", two, 0.45, ratio));
    let (mut bare, mut clients) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        bare.push(farthest("bare pairs", &raw_pairs(&programs, &seconds)?));
        clients.push(farthest("clients", &steps(MANY)?));
    }
    let (bare, clients) = (middle(bare), middle(clients));
    let what = format!("{MANY} clients, the farthest from their mean: 0.1, or as bare pairs are");
    bars.push(Bar::at_most(&what, clients, bare.max(0.1), ratio));

    bars.extend(memory_bars(&programs, &driver, &server)?);

    println!();
    arguments.gate.show(&bars)
}

/// What as many pairs of processes do over bare shared memory: how the operating system shares out the processors.
fn raw_pairs(programs: &Programs, seconds: &str) -> anyhow::Result<Vec<u64>> {
    let start = || Client::start(Command::new(&programs.own).args(["raw-work", seconds]));
    let (failed, all) = together(MANY, start)?;
    ensure!(failed == 0, "{failed} of {MANY} bare pairs failed");
    Ok(all)
}

/// How far the one that has made the most or the fewest steps is from the mean of all, as a part of it.
fn farthest(who: &str, steps: &[u64]) -> f64 {
    let mean = steps.iter().sum::<u64>() as f64 / steps.len().max(1) as f64;
    let far = steps.iter().map(|steps| (*steps as f64 - mean).abs()).fold(0.0, f64::max) / mean;
    let (least, most) = (steps.iter().min().unwrap_or(&0), steps.iter().max().unwrap_or(&0));
    println!("{} {who}: {least} to {most} steps, the farthest from their mean {}", steps.len(), ratio(far));
    far
}

/// The median.
fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// The arguments of `pool-bench memory`.
#[derive(clap::Args)]
pub struct MemoryArguments {
    /// The private server's driver
    #[arg(long, value_name = "soft|null|LIBRARY", default_value = "null")]
    driver: String,
}

/// Measures what a session takes in memory and prints it.
///
/// # Errors
/// It takes more than it may.
pub fn memory(arguments: &MemoryArguments) -> anyhow::Result<()> {
    let programs = Programs::find()?;
    let driver = programs.driver(&arguments.driver)?;
    let server = Server::start(&programs, &driver, &[])?;
    let bars = memory_bars(&programs, &driver, &server)?;
    bars::Gate::ALWAYS.show(&bars)
}

/// What a session takes in the client and in its worker.
fn memory_bars(programs: &Programs, driver: &Path, server: &Server) -> anyhow::Result<Vec<Bar>> {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let show = |mib: f64| format!("{mib:.1} MiB");
    let mut bars = Vec::new();
    for road in [Road::Shm, Road::Tcp] {
        let name = road.name();
        let mut client = Client::start(&mut programs.own_command(
            road,
            driver,
            &server.address(road),
            "client-memory",
        )?)?;
        client.go()?;
        let own = client.number()?;
        bars.push(Bar::at_most(&format!("client's memory beyond its rings, {name}"), mib(own), 8.0, show));
        let mut most = 0;
        for worker in memory::children(server.pid().context("a server of our own")?)? {
            most = most.max(memory::beyond(worker, driver)?);
        }
        bars.push(Bar::at_most(
            &format!("a session's memory beyond the driver, {name}"),
            mib(most),
            32.0,
            show,
        ));
        client.end()?;
    }
    Ok(bars)
}

fn quantile(values: &mut [u64], at: f64) -> u64 {
    values.sort_unstable();
    let last = values.len().saturating_sub(1);
    values.get((last as f64 * at).round() as usize).copied().unwrap_or(0)
}

/// Starts clients, lets them all go at the same time, and collects what they say; how many failed.
fn together(count: u16, start: impl Fn() -> anyhow::Result<Client>) -> anyhow::Result<(usize, Vec<u64>)> {
    let mut clients = (0..count).map(|_| start()).collect::<anyhow::Result<Vec<_>>>()?;
    for client in &mut clients {
        client.go()?;
    }
    let deadline = Instant::now() + LIMIT;
    let mut numbers = Vec::new();
    let mut failed = 0;
    for client in &mut clients {
        match client.number() {
            Ok(number) => numbers.push(number),
            Err(error) => {
                failed += 1;
                eprintln!("a client failed: {error:#}");
            }
        }
        ensure!(Instant::now() < deadline, "the clients hang");
    }
    for client in clients {
        client.end()?;
    }
    Ok((failed, numbers))
}

/// A client process: it says `ready`, waits for a line, says a number, and stays until its input ends.
struct Client {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Client {
    fn start(command: &mut Command) -> anyhow::Result<Client> {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("cannot start a client")?;
        let (input, output) =
            child.stdin.take().zip(child.stdout.take()).context("a client without pipes")?;
        let mut client = Client { child, input: Some(input), output: BufReader::new(output) };
        let line = client.line()?;
        ensure!(line == "ready", "a client said `{line}` instead of being ready");
        Ok(client)
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            bail!("a client ended early");
        }
        Ok(line.trim_end().to_owned())
    }

    fn go(&mut self) -> anyhow::Result<()> {
        self.input.as_mut().context("the client has ended")?.write_all(b"go\n").context("a client is gone")
    }

    fn number(&mut self) -> anyhow::Result<u64> {
        let line = self.line()?;
        line.parse().with_context(|| format!("a client said `{line}`"))
    }

    fn end(mut self) -> anyhow::Result<()> {
        drop(self.input.take());
        let deadline = Instant::now() + LIMIT;
        while self.child.try_wait()?.is_none() {
            ensure!(Instant::now() < deadline, "a client does not end");
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The client's side: `work` is what it does when it may go; what it gives is said.
pub fn client(work: impl FnOnce() -> anyhow::Result<u64>) -> anyhow::Result<()> {
    println!("ready");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    println!("{}", work()?);
    line.clear();
    // Stays until its input ends.
    std::io::stdin().read_line(&mut line)?;
    Ok(())
}

/// Says how many nanoseconds `cuInit` takes.
pub fn client_init(library: &Path) -> anyhow::Result<()> {
    let cuda = Driver::open(library)?;
    client(|| {
        let start = Instant::now();
        cuda.init()?;
        Ok(start.elapsed().as_nanos() as u64)
    })
}

/// Says how many steps of memsets and one small copy it has made.
pub fn client_work(library: &Path, seconds: u16) -> anyhow::Result<()> {
    let cuda = Driver::load(library)?;
    let (small, stream) = (cuda.alloc(4096)?, cuda.stream()?);
    client(|| {
        let end = Instant::now() + Duration::from_secs(seconds.into());
        let (mut steps, mut word) = (0, [0u8; 4]);
        while Instant::now() < end {
            (0..STEP).try_for_each(|value| cuda.memset_async(small, value, stream))?;
            cuda.dtoh(&mut word, small)?;
            steps += 1;
        }
        Ok(steps)
    })
}

/// Says how many bytes the client library has in this process, its rings left out.
pub fn client_memory(library: &Path) -> anyhow::Result<()> {
    let cuda = Driver::open(library)?;
    let mut bytes = vec![1u8; LARGE];
    client(|| {
        let before = memory::own_anonymous()?;
        cuda.init()?;
        cuda.primary()?;
        let (large, stream) = (cuda.alloc(LARGE)?, cuda.stream()?);
        (0..STEP).try_for_each(|value| cuda.memset_async(large, value, stream))?;
        cuda.htod(large, &bytes)?;
        cuda.dtoh(&mut bytes, large)?;
        Ok(memory::own_anonymous()?.saturating_sub(before) + memory::own_library()?)
    })
}
