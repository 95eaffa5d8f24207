//! The command line.

use std::os::fd::AsFd;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

use crate::config::Settings;
use crate::daemon::ready::{ReadyFd, notify_systemd};
use crate::daemon::{Daemon, DaemonConfig};
use crate::worker::{self, Work};

/// Owns GPUs and runs the CUDA calls of remote programs on them
#[derive(Debug, Parser)]
#[command(name = "pool-server", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Listen for clients and serve their sessions until SIGTERM or SIGINT
    Serve(ServeArgs),
    /// One session's process; started by `serve`, of no use by hand
    #[command(hide = true)]
    Worker,
}

#[derive(Debug, clap::Args)]
struct ServeArgs {
    #[command(flatten)]
    settings: Settings,
    /// Settings for what no flag says [default: /etc/gpupool/server.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Open descriptor to which `listening unix=PATH tcp=ADDR:PORT` is written once clients can connect
    #[arg(long, value_name = "N")]
    ready_fd: Option<i32>,
}

/// Runs the command that the arguments name. `W` is what worker processes do.
pub fn main<W: Work>() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Serve(args) => {
            let ready = args.ready_fd.map(ReadyFd::inherited).transpose()?;
            let settings = args.settings.completed_by_file(args.config.as_deref())?;
            start_log(settings.log_filter())?;
            serve(settings.resolve()?, ready)
        }
        Command::Worker => {
            start_log(&std::env::var(crate::LOG_VARIABLE).unwrap_or_else(|_| "info".into()))?;
            // Standard error becomes the client's when kernels may write there.
            std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
            worker::main::<W>()
        }
    }
}

fn start_log(filter: &str) -> anyhow::Result<()> {
    let filter = log_filter(filter)?;
    let terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    // A descriptor of its own: a worker's standard error goes to its client later.
    let own = std::io::stderr().as_fd().try_clone_to_owned().context("cannot use standard error")?;
    let writer = std::sync::Arc::new(std::fs::File::from(own));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_ansi(terminal).init();
    Ok(())
}

fn log_filter(filter: &str) -> anyhow::Result<EnvFilter> {
    // A filter takes any word for the name of a module, and would then log nothing else.
    let one_word = filter.chars().all(char::is_alphanumeric);
    if one_word && filter.parse::<tracing_subscriber::filter::LevelFilter>().is_err() {
        anyhow::bail!("log: `{filter}` is no level; levels are off, error, warn, info, debug, trace");
    }
    EnvFilter::builder().parse(filter).with_context(|| format!("log: `{filter}` is not a filter"))
}

/// Serves until SIGTERM or SIGINT.
pub fn serve(config: DaemonConfig, ready: Option<ReadyFd>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(async {
        use tokio::signal::unix::{SignalKind, signal};
        let mut terminate = signal(SignalKind::terminate()).context("cannot watch for SIGTERM")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot watch for SIGINT")?;
        let stop = async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        tokio::pin!(stop);
        let daemon = tokio::select! {
            daemon = Daemon::start(config) => daemon?,
            () = &mut stop => return Ok(()),
        };
        let (unix, tcp) = (daemon.socket().map(ToOwned::to_owned), daemon.address());
        tracing::info!(unix = ?unix, tcp = ?tcp, "listening");
        if let Some(ready) = ready {
            ready.tell(unix.as_deref(), tcp)?;
        }
        notify_systemd("READY=1");
        let stop = async {
            stop.await;
            notify_systemd("STOPPING=1");
        };
        daemon.run_until(stop).await;
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::log_filter;

    #[test]
    fn a_word_that_is_no_level_is_refused() {
        for good in ["off", "info", "trace", "warn,pool_server::worker=debug", "pool_server=trace"] {
            assert!(log_filter(good).is_ok(), "{good}");
        }
        assert!(log_filter("loud").unwrap_err().to_string().contains("`loud` is no level"));
        assert!(log_filter("pool_server=loud").is_err());
    }
}
