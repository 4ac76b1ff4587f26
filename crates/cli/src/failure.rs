//! Failures, and how a command ends.
//!
//! A failure is one line: `extant: COMMAND: WHERE: WHAT`. Commands with several operands go on
//! after one that fails, as their Unix namesakes do; then each failure has been printed when it
//! happened, and the outcome only says that there was one.

use std::fmt;
use std::io;
use std::process::ExitCode;

use crate::printable::harmless;

/// Why a command, or one operand of it, failed.
#[derive(Debug)]
pub(crate) struct Failure {
    place: String,
    what: String,
}

impl Failure {
    /// Something without a place.
    pub(crate) fn new(what: impl fmt::Display) -> Failure {
        Failure {
            place: String::new(),
            what: what.to_string(),
        }
    }

    /// `what` happened at `place`.
    pub(crate) fn at(place: impl fmt::Display, what: impl fmt::Display) -> Failure {
        Failure {
            place: place.to_string(),
            what: what.to_string(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.place.is_empty() {
            return f.write_str(&self.what);
        }
        write!(f, "{}: {}", self.place, self.what)
    }
}

impl From<extant::Error> for Failure {
    fn from(error: extant::Error) -> Failure {
        Failure::new(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::new(plain(&error))
    }
}

impl From<rustix::io::Errno> for Failure {
    fn from(error: rustix::io::Errno) -> Failure {
        io::Error::from(error).into()
    }
}

/// How a command ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Well.
    Done,
    /// With failures that were printed already.
    Printed,
    /// With this failure.
    Failed(Failure),
    /// The operands make no sense together.
    Usage(String),
    /// With an exit status of the command's own, and perhaps a failure to print.
    Status(u8, Option<Failure>),
}

impl From<Result<(), Failure>> for Outcome {
    fn from(result: Result<(), Failure>) -> Outcome {
        match result {
            Ok(()) => Outcome::Done,
            Err(failure) => Outcome::Failed(failure),
        }
    }
}

/// Adds where an error happened.
pub(crate) trait At<T> {
    /// At this place.
    fn at(self, place: impl fmt::Display) -> Result<T, Failure>;
}

impl<T> At<T> for Result<T, extant::Error> {
    fn at(self, place: impl fmt::Display) -> Result<T, Failure> {
        self.map_err(|error| Failure::at(place, error))
    }
}

impl<T> At<T> for io::Result<T> {
    fn at(self, place: impl fmt::Display) -> Result<T, Failure> {
        self.map_err(|error| Failure::at(place, plain(&error)))
    }
}

impl<T> At<T> for rustix::io::Result<T> {
    fn at(self, place: impl fmt::Display) -> Result<T, Failure> {
        self.map_err(io::Error::from).at(place)
    }
}

impl<T> At<T> for Result<T, Failure> {
    fn at(self, place: impl fmt::Display) -> Result<T, Failure> {
        self.map_err(|failure| Failure::at(place, failure))
    }
}

/// An error of the host in words, without its number.
pub(crate) fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error ") {
        Some(end) if error.raw_os_error().is_some() => text.get(..end).unwrap_or(&text).to_owned(),
        _ => text,
    }
}

/// Collects the failures of a command's operands.
#[derive(Debug)]
pub(crate) struct Failures {
    command: &'static str,
    any: bool,
}

impl Failures {
    pub(crate) fn of(command: &'static str) -> Failures {
        Failures {
            command,
            any: false,
        }
    }

    /// Prints a failure, if this is one.
    pub(crate) fn note<T>(&mut self, result: Result<T, Failure>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(failure) => {
                print(self.command, &failure);
                self.any = true;
                None
            }
        }
    }

    pub(crate) fn outcome(self) -> Outcome {
        if self.any {
            Outcome::Printed
        } else {
            Outcome::Done
        }
    }
}

fn print(command: &str, failure: &dyn fmt::Display) {
    let line = harmless(&failure.to_string());
    eprintln!("extant: {command}: {line}");
}

/// Prints what is left to print and turns the outcome into an exit status.
pub(crate) fn exit(command: &str, outcome: Outcome) -> ExitCode {
    match outcome {
        Outcome::Done => ExitCode::SUCCESS,
        Outcome::Printed => ExitCode::FAILURE,
        Outcome::Failed(failure) => {
            print(command, &failure);
            ExitCode::FAILURE
        }
        Outcome::Usage(what) => {
            print(command, &format!("{what} (see extant {command} --help)"));
            ExitCode::from(2)
        }
        Outcome::Status(status, failure) => {
            if let Some(failure) = failure {
                print(command, &failure);
            }
            ExitCode::from(status)
        }
    }
}
