//! A limited address space (`ulimit -v`): enough for a mount, or a plain error before it begins.
//!
//! The C library's allocator reserves 64 MiB of addresses for each of several threads. Where
//! addresses are few it runs out of them while there is memory, and a failed allocation ends the
//! process in the middle of its work. So a mount whose addresses are limited begins again with one
//! such reserve for all threads, which only the environment of a new process can say.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Resource, getrlimit};

use crate::failure::Failure;
use crate::program;

/// The least that a mount needs: its threads' stacks, its caches (a quarter, and 64 MiB), and
/// requests.
const LEAST: u64 = 512 << 20;
/// How many reserves the allocator makes.
const RESERVES: &str = "MALLOC_ARENA_MAX";

/// Checks the limit. Where there is one this process may begin again, with the same arguments.
pub(crate) fn prepare() -> Result<(), Failure> {
    let Some(limit) = getrlimit(Resource::As).current else {
        return Ok(());
    };
    if limit < LEAST {
        let (mib, least) = (limit >> 20, LEAST >> 20);
        let what = format!(
            "the address space is limited to {mib} MiB (ulimit -v); a mount needs {least} MiB"
        );
        return Err(Failure::new(what));
    }
    if env::var_os(RESERVES).is_some() {
        return Ok(());
    }
    let mut arguments = env::args_os();
    // A caller may pass no name of the program.
    let name = arguments.next().unwrap_or_default();
    let mut again = Command::new(program::own_path());
    again.arg0(name).args(arguments).env(RESERVES, "1");
    Err(Failure::new(again.exec()))
}
