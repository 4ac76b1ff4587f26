//! Failures, and how a command ends.
//!
//! A failure is one line: `extant: COMMAND: WHERE: WHAT`. Commands with several operands go on
//! after one that fails, as their Unix namesakes do; then each failure has been printed when it
//! happened, and the outcome only says that there was one.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use extant::device::OpenError;

use crate::printable::print_error_line;

/// Why a command, or one operand of it, failed.
#[derive(Debug)]
pub(crate) struct Failure {
    location: String,
    what: String,
    /// The error that `what` describes, if it is one.
    cause: Option<Box<dyn Error + Send + Sync>>,
}

impl Failure {
    /// A failure without a location.
    pub(crate) fn new(what: impl Into<Failure>) -> Failure {
        what.into()
    }

    /// `what` happened at `location`.
    pub(crate) fn at(location: impl fmt::Display, what: impl Into<Failure>) -> Failure {
        let what = what.into();
        Failure {
            location: location.to_string(),
            what: what.to_string(),
            cause: what.cause,
        }
    }

    /// `what`, in words of its own, happened because of `cause`.
    pub(crate) fn caused_by(
        cause: impl Error + Send + Sync + 'static,
        what: impl Into<String>,
    ) -> Failure {
        Failure {
            cause: Some(Box::new(cause)),
            ..what.into().into()
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.location.is_empty() {
            return f.write_str(&self.what);
        }
        write!(f, "{}: {}", self.location, self.what)
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        let cause = self.cause.as_deref()?;
        Some(cause)
    }
}

impl From<String> for Failure {
    fn from(what: String) -> Failure {
        Failure {
            location: String::new(),
            what,
            cause: None,
        }
    }
}

impl From<&str> for Failure {
    fn from(what: &str) -> Failure {
        what.to_owned().into()
    }
}

/// Failures that say themselves what they are.
macro_rules! caused_by {
    ($($error:ty),* $(,)?) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Failure {
                let what = error.to_string();
                Failure::caused_by(error, what)
            }
        }
    )*};
}
caused_by!(
    extant::Error,
    extant::build::Error,
    extant::mkfs::Error,
    extant::resize::Error,
    extant_fuse::OptionError
);

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        let what = plain(&error);
        Failure::caused_by(error, what)
    }
}

impl From<OpenError> for Failure {
    /// Of an image, which the error names.
    fn from(error: OpenError) -> Failure {
        match error {
            OpenError::Io(path, error) => Failure::at(path.display(), error),
            other => {
                let what = other.to_string();
                Failure::caused_by(other, what)
            }
        }
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
    /// At this location.
    fn at(self, location: impl fmt::Display) -> Result<T, Failure>;
}

impl<T, E: Into<Failure>> At<T> for Result<T, E> {
    fn at(self, location: impl fmt::Display) -> Result<T, Failure> {
        self.map_err(|error| Failure::at(location, error))
    }
}

/// An error of the host in words, without its number.
pub(crate) fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error ") {
        Some(end) if error.raw_os_error().is_some() => text[..end].to_owned(),
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
                print_failure(self.command, &failure);
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
    print_error_line(&format!("extant: {command}: {failure}"));
}

/// Prints a failure. What caused it is logged, one error after the other.
fn print_failure(command: &str, failure: &Failure) {
    print(command, failure);
    for cause in std::iter::successors(failure.source(), |&error| error.source()) {
        tracing::debug!(%cause, "because");
    }
}

/// Prints what is left to print and turns the outcome into an exit status.
pub(crate) fn exit(command: &str, outcome: Outcome) -> ExitCode {
    match outcome {
        Outcome::Done => ExitCode::SUCCESS,
        Outcome::Printed => ExitCode::FAILURE,
        Outcome::Failed(failure) => {
            print_failure(command, &failure);
            ExitCode::FAILURE
        }
        Outcome::Usage(what) => {
            print(command, &format!("{what} (see extant {command} --help)"));
            ExitCode::from(2)
        }
        Outcome::Status(status, failure) => {
            if let Some(failure) = failure {
                print_failure(command, &failure);
            }
            ExitCode::from(status)
        }
    }
}

/// The failure of an address, with its cause.
pub(crate) fn caused(image: &Path, error: impl Error + Send + Sync + 'static) -> Failure {
    let what = error.to_string();
    Failure::at(image.display(), Failure::caused_by(error, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_keeps_the_error_behind_its_words() {
        let failed = Err::<(), _>(io::Error::from_raw_os_error(5));
        let failure = failed.at("/f").at("disk.img").unwrap_err();
        assert_eq!(failure.to_string(), "disk.img: /f: Input/output error");
        let device = failure.source().and_then(|e| e.downcast_ref::<io::Error>());
        assert_eq!(device.and_then(io::Error::raw_os_error), Some(5));

        // As the library reports a device that failed.
        let error = extant::Error::from(io::Error::from_raw_os_error(5));
        let failure = Failure::at("disk.img:/f", error);
        let mut chain = std::iter::successors(failure.source(), |&e| e.source());
        let device = chain.find_map(|error| error.downcast_ref::<io::Error>());
        assert_eq!(device.and_then(io::Error::raw_os_error), Some(5));
        assert!(Failure::new("words").source().is_none());
    }
}
