//! Peak memory of this process and of others, as the kernel counts it.

use std::time::{Duration, Instant};

use extant_host::{Cmd, Error, Result};

/// The growth of a process's memory from a moment on.
pub(crate) struct Peak {
    process: String,
    /// KiB that the process held then.
    before: f64,
}

impl Peak {
    /// Of this process, from now on; `None` where the kernel cannot forget an earlier peak. What
    /// the allocator kept of earlier work is not seen.
    pub(crate) fn of_this_process() -> Option<Peak> {
        std::fs::write("/proc/self/clear_refs", "5").ok()?;
        Peak::of("self".to_owned()).ok()
    }

    /// Of another process, from now on or from an earlier peak.
    pub(crate) fn of_process(pid: u32) -> Result<Peak> {
        Peak::of(pid.to_string())
    }

    fn of(process: String) -> Result<Peak> {
        let before = field(&process, "VmRSS:")?;
        Ok(Peak { process, before })
    }

    /// MiB that it has held at once since, beyond what it held then.
    pub(crate) fn mib(&self) -> Result<f64> {
        let highest = field(&self.process, "VmHWM:")?;
        Ok((highest - self.before).max(0.0) / 1024.0)
    }
}

/// A figure of a process's memory, in KiB.
fn field(process: &str, name: &str) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let found = status.lines().find_map(|line| line.strip_prefix(name));
    let figure = found.and_then(|rest| rest.split_whitespace().next());
    let figure = figure.ok_or_else(|| Error::new(format!("no {name} of {process}")))?;
    Ok(figure.parse()?)
}

/// Runs a command to its end; returns the MiB that it held at most, as seen every few
/// milliseconds. Its exit status must be 0. Past `limit` it is killed, and an error.
pub(crate) fn peak_of(cmd: Cmd, limit: Duration) -> Result<f64> {
    let end = Instant::now() + limit;
    let mut running = cmd.spawn()?;
    let process = running.pid().to_string();
    let mut most = 0.0f64;
    loop {
        // A process that has just ended has no memory any more.
        most = field(&process, "VmHWM:").map_or(most, |now| most.max(now));
        match running.poll()? {
            Some(output) if output.code == Some(0) => return Ok(most / 1024.0),
            Some(output) => return Err(Error::new(output.describe())),
            None if Instant::now() > end => {
                running.kill()?;
                let secs = limit.as_secs();
                return Err(Error::new(format!("it takes more than {secs} s")));
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_is_seen_after_the_memory_is_gone() {
        let peak = Peak::of_this_process().unwrap();
        let before = peak.mib().unwrap();
        assert!(before < 24.0, "{before}");
        let mut memory = vec![0u8; 32 << 20];
        memory.fill(7);
        std::hint::black_box(&memory);
        drop(memory);
        let grown = peak.mib().unwrap();
        assert!((24.0..200.0).contains(&grown), "{grown}");
    }

    #[test]
    fn the_memory_of_a_command_is_seen() {
        let cmd = Cmd::new("sh").args(["-c", "sleep 0.05"]);
        let limit = Duration::from_secs(60);
        assert!(peak_of(cmd, limit).unwrap() > 0.1);
        assert!(peak_of(Cmd::new("false"), limit).is_err());
        let endless = Cmd::new("sleep").arg("600");
        let said = peak_of(endless, Duration::from_millis(20)).unwrap_err();
        assert!(said.to_string().contains("it takes more than"));
    }
}
