//! `demo` runs the main job; `demo worker …` is one of its worker processes.

use std::env;
use std::error::Error;
use std::io::{Write, stderr};
use std::process::ExitCode;

use postroom_tests::demo::Outcome;
use postroom_tests::demo::options::Options;
use postroom_tests::demo::{run, worker};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let ended = match arguments.split_first() {
        Some((first, rest)) if first == "worker" => {
            worker::work(rest).await.map(|()| ExitCode::SUCCESS)
        }
        _ => demo(&arguments).await,
    };
    ended.unwrap_or_else(|error| {
        eprintln!("{}", told(&*error));
        ExitCode::FAILURE
    })
}

/// Whatever the run started ends with the future that holds it.
async fn demo(arguments: &[String]) -> Outcome<ExitCode> {
    let options = Options::read(arguments)?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        sound = run::run(&options) => Ok(if sound? { ExitCode::SUCCESS } else { ExitCode::FAILURE }),
        _ = interrupt.recv() => Ok(stopped(130)),
        _ = terminate.recv() => Ok(stopped(143)),
    }
}

/// As a shell reports a program that a signal ended. Whoever read the output may have gone first.
fn stopped(code: u8) -> ExitCode {
    let _ = writeln!(
        stderr(),
        "interrupted: workers, broker and server are stopped"
    );
    ExitCode::from(code)
}

/// The error and its causes: the database's own words are in a cause.
fn told(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}
