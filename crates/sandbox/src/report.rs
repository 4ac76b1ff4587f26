//! The confinement in force.

use rustix::thread::{capabilities, no_new_privs};

/// The confinement of a process, as numbers for `extant stats`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Report {
    seccomp: bool,
    landlock: u32,
    no_new_privs: bool,
    capabilities: u32,
}

impl Report {
    /// The report of a process that did not call [`crate::enter`].
    #[must_use]
    pub fn unconfined() -> Report {
        Report::of_this_thread(0)
    }

    pub(crate) fn of_this_thread(landlock: u32) -> Report {
        let held = capabilities(None).map_or(0, |sets| sets.permitted.bits().count_ones());
        Report {
            seccomp: false,
            landlock,
            // What the kernel does not tell is reported as not confined.
            no_new_privs: no_new_privs().unwrap_or(false),
            capabilities: held,
        }
    }

    pub(crate) fn with_filter(mut self, seccomp: bool) -> Report {
        self.seccomp = seccomp;
        self
    }

    /// Returns the parts that were asked for and the kernel lacks; empty if it has all.
    #[must_use]
    pub fn missing(&self) -> &'static str {
        match (self.seccomp, self.landlock > 0) {
            (true, true) => "",
            (true, false) => "Landlock",
            (false, true) => "seccomp filters",
            (false, false) => "seccomp filters and Landlock",
        }
    }

    /// Names and values for the counters of a mount.
    #[must_use]
    pub fn counters(&self) -> [(&'static str, u64); 4] {
        [
            ("sandbox_seccomp", self.seccomp.into()),
            ("sandbox_landlock", self.landlock.into()),
            ("sandbox_no_new_privs", self.no_new_privs.into()),
            ("sandbox_capabilities", self.capabilities.into()),
        ]
    }
}
