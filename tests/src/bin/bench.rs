//! `bench` measures and writes docs/benchmark.md; `bench report` writes it anew from the last results.

use std::env;
use std::process::ExitCode;

use postroom_tests::bench::Outcome;
use postroom_tests::bench::options::Options;
use postroom_tests::bench::run;
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> ExitCode {
    match bench().await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Whatever the run started ends with the future that holds it.
async fn bench() -> Outcome<ExitCode> {
    let options = Options::read()?;
    if env::args().nth(1).as_deref() == Some("report") {
        run::retell(&options)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        done = run::run(&options) => done.map(|()| ExitCode::SUCCESS),
        _ = interrupt.recv() => Ok(ExitCode::from(130)),
        _ = terminate.recv() => Ok(ExitCode::from(143)),
    }
}
