//! The one error: a sentence, to be shown and not to be matched on.

use std::fmt;

/// An error, in words.
pub struct Error(String);

/// A result of the kit.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error that says `text`.
    pub fn new(text: impl Into<String>) -> Self {
        Error(text.into())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// `Error` itself is no `std::error::Error`, which is what makes this blanket conversion possible.
impl<E: std::error::Error> From<E> for Error {
    fn from(e: E) -> Self {
        Error(e.to_string())
    }
}

/// Adds what was being done to an error.
pub trait Context<T> {
    /// Prefixes the error with `what()`.
    fn context<S: fmt::Display>(self, what: impl FnOnce() -> S) -> Result<T>;
}

impl<T, E: Into<Error>> Context<T> for std::result::Result<T, E> {
    fn context<S: fmt::Display>(self, what: impl FnOnce() -> S) -> Result<T> {
        self.map_err(|e| Error(format!("{}: {}", what(), e.into().0)))
    }
}

/// Ends the surrounding function with a kit error made of a format string.
#[macro_export]
macro_rules! bail {
    ($($arg:tt)*) => { return Err($crate::Error::new(format!($($arg)*))) };
}

/// Ends the surrounding function with a kit error unless the condition holds.
#[macro_export]
macro_rules! ensure {
    ($cond:expr, $($arg:tt)*) => { if !$cond { $crate::bail!($($arg)*) } };
}
