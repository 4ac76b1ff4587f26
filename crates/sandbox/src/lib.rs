//! Confinement: a process that has opened all it needs gives up the means to reach more.
//!
//! # Responsibility
//! [`enter`] takes, in this order, from the calling thread and from every thread that it starts
//! later:
//! 1. the way to new privileges (`no_new_privs`);
//! 2. the capabilities (`privileges`);
//! 3. the paths and the network, by Landlock (`paths`);
//! 4. the system calls that are not in the list (`calls`), by seccomp (`filter`).
//!
//! [`Report`] says what of it the kernel has put into force. A kernel that lacks Landlock or
//! seccomp confines by the rest.
//!
//! # Invariants
//! - The list of `calls` is the only place that decides which calls a confined process makes.
//! - Nothing taken comes back before the process ends.
//!
//! # Concurrency
//! Landlock and capabilities belong to threads. A thread that was started before [`enter`] keeps
//! its own, so a process calls [`enter`] while it has one thread. The system-call filter is put on
//! all threads.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "tests"))]

mod calls;
mod filter;
mod paths;
mod privileges;
mod profile;
mod report;

pub use filter::FilterError;
pub use profile::Profile;
pub use report::Report;

/// Why a process could not be confined.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its capabilities could not be given up.
    #[error("giving up capabilities: {0}")]
    Privileges(#[source] rustix::io::Errno),
    /// Landlock refused.
    #[error("Landlock: {0}")]
    Paths(#[from] landlock::RulesetError),
    /// The list of calls could not be put into force.
    #[error("the system-call filter: {0}")]
    Calls(#[from] FilterError),
}

/// Gives up the capabilities of this process, and the way to new ones: the first two steps of
/// [`enter`]. Call it while there is one thread.
///
/// # Errors
/// [`Error::Privileges`].
pub fn give_up_privileges() -> Result<(), Error> {
    privileges::give_up().map_err(Error::Privileges)
}

/// Confines this process. See the crate's documentation; call it while there is one thread.
///
/// # Errors
/// A part was refused for another reason than that the kernel lacks it. The parts before it are in
/// force.
pub fn enter(profile: &Profile) -> Result<Report, Error> {
    give_up_privileges()?;
    let landlock = paths::close()?;
    // The filter lets nothing ask for them.
    let report = Report::of_this_thread(landlock);
    Ok(report.with_filter(filter::install(profile)?))
}
