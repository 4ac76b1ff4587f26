//! The outcome of a call: a number for C, and the message of the last failure.
//!
//! # Concurrency
//! Each thread has its own message, as it has its own `errno`.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use extant::{Error, Volume};

thread_local! {
    /// This thread's last failed call.
    static LAST: RefCell<LastFailure> = const { RefCell::new(LastFailure::NONE) };
}

/// Words about a failed call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LastFailure {
    /// The message; empty before the first failure.
    pub(crate) message: String,
    /// The name of the kind of damage (`CorruptKind::name`); empty where no damage was found.
    pub(crate) kind: String,
}

impl LastFailure {
    const NONE: LastFailure = LastFailure {
        message: String::new(),
        kind: String::new(),
    };
}

/// A failed call: a positive errno and its words.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    errno: c_int,
    words: LastFailure,
}

/// The result of a call before it becomes a number.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// A failure with a message of its own.
    pub(crate) fn new(errno: c_int, text: impl Into<String>) -> Failure {
        let message = text.into();
        let kind = String::new();
        Failure {
            errno,
            words: LastFailure { message, kind },
        }
    }

    /// A null pointer where `what` is needed.
    pub(crate) fn null(what: &str) -> Failure {
        Failure::new(libc::EFAULT, format!("{what}: a null pointer"))
    }

    /// An argument that the call does not accept.
    pub(crate) fn invalid(what: impl Into<String>) -> Failure {
        Failure::new(libc::EINVAL, what)
    }

    /// A panic that was caught on its way to C.
    fn of_panic(payload: Box<dyn Any + Send>) -> Failure {
        let text = match (payload.downcast_ref::<&str>(), payload.downcast_ref()) {
            (Some(text), _) => (*text).to_owned(),
            (None, Some(text)) => String::clone(text),
            (None, None) => "unknown".to_owned(),
        };
        // A payload of any type could panic once more when it is dropped.
        std::mem::forget(payload);
        Failure::new(libc::EIO, format!("internal error: {text}"))
    }

    /// Notes the words for this thread, and returns the negative errno.
    fn record(self) -> c_int {
        // A thread that ends may have dropped its words already: then nothing reads them.
        let _ = LAST.try_with(|last| last.replace(self.words));
        -self.errno
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let mut failure = Failure::new(error.errno(), error.to_string());
        failure.words.kind = error
            .corrupt_kind()
            .map(|kind| kind.name())
            .unwrap_or_default();
        failure
    }
}

/// A number that a call returns: a count, a position or 0, or a negative errno.
pub(crate) trait Code {
    /// The negative errno as this number.
    fn of_errno(errno: c_int) -> Self;
}

impl Code for c_int {
    fn of_errno(errno: c_int) -> c_int {
        errno
    }
}

impl Code for i64 {
    fn of_errno(errno: c_int) -> i64 {
        i64::from(errno)
    }
}

impl Code for isize {
    fn of_errno(errno: c_int) -> isize {
        isize::try_from(errno).expect("an errno has at most 12 bits")
    }
}

/// Runs a call of C: no panic passes, and a failure becomes a number with a message.
pub(crate) fn of_call<T: Code>(call: impl FnOnce() -> Result<T>) -> T {
    // Nothing of the closure is used after a panic; `on` deals with what it has changed.
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => value,
        Ok(Err(failure)) => T::of_errno(failure.record()),
        Err(payload) => T::of_errno(Failure::of_panic(payload).record()),
    }
}

/// An object that C has a pointer to: each has a file system behind it.
pub(crate) trait Handle {
    /// The file system.
    fn volume(&self) -> &Volume;
}

/// As [`of_call`], for a call on a handle. A panic shuts the handle's file system down, because the
/// engine may have left a change half done: later calls fail, and the image is replayed.
pub(crate) fn on<H: Handle, T: Code>(handle: Option<&H>, call: impl FnOnce(&H) -> Result<T>) -> T {
    of_call(|| {
        let handle = handle.ok_or_else(|| Failure::null("the handle"))?;
        catch_unwind(AssertUnwindSafe(|| call(handle))).unwrap_or_else(|payload| {
            let failure = Failure::of_panic(payload);
            // The panic is the failure to report, whether or not more can be made durable.
            let _ = handle.volume().shutdown(false);
            Err(failure)
        })
    })
}

/// A count of bytes as C's `ssize_t`.
pub(crate) fn bytes(count: usize) -> Result<isize> {
    isize::try_from(count).map_err(|_| Failure::new(libc::EOVERFLOW, "a count past SSIZE_MAX"))
}

/// The words about this thread's last failed call.
pub(crate) fn last_failure() -> LastFailure {
    LAST.with_borrow(LastFailure::clone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_number() {
        let told: c_int = of_call(|| panic!("lost {}", 7));
        assert_eq!(
            (told, last_failure().message),
            (-libc::EIO, "internal error: lost 7".into())
        );
        let told: isize = of_call(|| std::panic::panic_any(5));
        assert_eq!(
            (told, last_failure().message),
            (-5, "internal error: unknown".to_owned())
        );
    }

    #[test]
    fn a_failure_keeps_its_errno_and_its_words() {
        let told: i64 = of_call(|| Err(Error::NotFound.into()));
        assert_eq!(
            (told, last_failure().message),
            (-2, "No such file or directory".to_owned())
        );
        // A call that succeeds leaves the message.
        assert_eq!(of_call(|| Ok(3)), 3);
        assert_eq!(last_failure().message, "No such file or directory");
    }
}
