//! How a tree ends a process that it can no longer serve: an invariant of its own does not hold.

/// Panics with the source line that noticed, what was being done, and the record in question.
///
/// A macro, so that the report names the line of its caller; the branch that gets here is a
/// cold one.
macro_rules! io_tree_panic {
    ($what:expr, $record:expr) => {
        $crate::report::broken(file!(), line!(), $what, &$record)
    };
}
pub(crate) use io_tree_panic;

/// The end of [`io_tree_panic`].
#[cold]
#[inline(never)]
pub(crate) fn broken(file: &str, line: u32, what: &str, record: &dyn std::fmt::Debug) -> ! {
    panic!("I/O tree at {file}:{line}: {what}: {record:?}")
}
