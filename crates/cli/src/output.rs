//! Output of commands: names, modes, times.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub(crate) use extant::sides::{device_number, device_numbers};
use extant::{Attr, FileKind, Metadata, Timestamp};
use rustix::fs::{FileType as RustixType, OFlags, SeekFrom, fcntl_getfl, fstat, ftruncate, seek};
use rustix::io::Errno;
use serde_json::{Value, json};

use crate::failure::{At, Failure};
use crate::printable::harmless;

/// Refuses to write over a file of the host that is in use, behind symbolic links.
pub(crate) fn refuse_in_use(path: &Path) -> Result<(), Failure> {
    let refused = extant::device::refuse_target_in_use(path);
    refused.map_err(extant::Error::from).at(path.display())
}

/// Writes a file of the host, unless it is in use.
pub(crate) fn write_file(path: &Path, content: impl AsRef<[u8]>) -> Result<(), Failure> {
    refuse_in_use(path)?;
    fs::write(path, content).at(path.display())
}

/// Standard output, buffered. A reader that goes away ends the output without complaint, a failure
/// with one.
pub(crate) struct Output {
    out: io::BufWriter<io::StdoutLock<'static>>,
    terminal: bool,
    closed: bool,
}

impl Output {
    pub(crate) fn new() -> Output {
        let out = io::stdout().lock();
        let terminal = out.is_terminal();
        Output {
            out: io::BufWriter::with_capacity(1 << 16, out),
            terminal,
            closed: false,
        }
    }

    /// Writes bytes as they are.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if self.closed {
            return Ok(());
        }
        let written = self.out.write_all(bytes);
        self.ended(written)
    }

    /// Reports the first failure; what is left in the buffer would fail again.
    fn ended(&mut self, result: io::Result<()>) -> Result<(), Failure> {
        self.closed |= result.is_err();
        printed(result)
    }

    /// Writes zeros.
    pub(crate) fn zeros(&mut self, mut len: u64) -> Result<(), Failure> {
        static ZEROS: [u8; 1 << 16] = [0; 1 << 16];
        while len > 0 && !self.closed {
            let piece = usize::try_from(len).unwrap_or(usize::MAX).min(ZEROS.len());
            self.bytes(&ZEROS[..piece])?;
            len -= piece as u64;
        }
        Ok(())
    }

    /// Makes a hole where a regular file that is not appended to has nothing yet; writes zeros to
    /// anything else.
    pub(crate) fn hole(&mut self, len: u64) -> Result<(), Failure> {
        self.flush()?;
        if self.closed {
            return Ok(());
        }
        let out = self.out.get_ref();
        let made = || -> rustix::io::Result<bool> {
            let (stat, flags) = (fstat(out)?, fcntl_getfl(out)?);
            let regular = RustixType::from_raw_mode(stat.st_mode) == RustixType::RegularFile;
            if !regular || flags.contains(OFlags::APPEND) {
                return Ok(false);
            }
            let pos = seek(out, SeekFrom::Current(0))?;
            // A length below zero, from the host, counts as the largest.
            if pos < u64::try_from(stat.st_size).unwrap_or(u64::MAX) {
                return Ok(false);
            }
            let end = pos.checked_add(len).ok_or(Errno::FBIG)?;
            ftruncate(out, end)?;
            seek(out, SeekFrom::Start(end))?;
            Ok(true)
        };
        match made() {
            Ok(true) => Ok(()),
            Ok(false) => self.zeros(len),
            Err(error) => self.ended(Err(error.into())),
        }
    }

    /// Writes text.
    pub(crate) fn text(&mut self, text: impl AsRef<str>) -> Result<(), Failure> {
        self.bytes(text.as_ref().as_bytes())
    }

    /// Writes a name from an image: to a terminal without the characters that could control it.
    pub(crate) fn name(&mut self, name: &OsStr) -> Result<(), Failure> {
        if !self.terminal {
            return self.bytes(name.as_bytes());
        }
        self.text(harmless(&name.to_string_lossy()))
    }

    /// Writes a line of JSON.
    pub(crate) fn json(&mut self, value: &Value) -> Result<(), Failure> {
        let text = if self.terminal {
            format!("{value:#}\n")
        } else {
            format!("{value}\n")
        };
        self.text(text)
    }

    /// Writes an item of an array in JSON that is longer than memory may be.
    pub(crate) fn json_array_item(&mut self, item: &Value, first: bool) -> Result<(), Failure> {
        self.text(if first { "[" } else { "," })?;
        if !self.terminal {
            return self.text(item.to_string());
        }
        self.text(format!("\n{item:#}").replace('\n', "\n  "))
    }

    /// Ends the array; `empty` if it has no item.
    pub(crate) fn json_array_end(&mut self, empty: bool) -> Result<(), Failure> {
        self.text(match (empty, self.terminal) {
            (true, _) => "[]\n",
            (false, true) => "\n]\n",
            (false, false) => "]\n",
        })
    }

    /// Returns whether the output has ended: its reader has gone away, or it failed.
    pub(crate) fn closed(&self) -> bool {
        self.closed
    }

    /// Returns whether it goes to a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Writes what is buffered.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        if self.closed {
            return Ok(());
        }
        let flushed = self.out.flush();
        self.ended(flushed)
    }

    /// Writes what is buffered, and ends.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        self.flush()
    }
}

/// The result of text that was printed past [`Output`], as a whole: a reader that went away is no
/// failure.
pub(crate) fn printed(result: io::Result<()>) -> Result<(), Failure> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|error| Failure::at("standard output", error)),
    }
}

/// The word for a kind.
pub(crate) fn kind_word(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::BlockDevice => "block",
        FileKind::CharDevice => "char",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
    }
}

/// Kind and permissions as `ls -l` writes them.
pub(crate) fn mode_word(kind: FileKind, perm: u16) -> String {
    let first = match kind {
        FileKind::Regular => '-',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::BlockDevice => 'b',
        FileKind::CharDevice => 'c',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
    };
    let mut word = String::from(first);
    for (shift, special, set, unset) in [
        (6, 0o4000, 's', 'S'),
        (3, 0o2000, 's', 'S'),
        (0, 0o1000, 't', 'T'),
    ] {
        let bits = perm >> shift;
        word.push(if bits & 4 != 0 { 'r' } else { '-' });
        word.push(if bits & 2 != 0 { 'w' } else { '-' });
        word.push(match (perm & special != 0, bits & 1 != 0) {
            (true, true) => set,
            (true, false) => unset,
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    word
}

/// A time in UTC, as RFC 3339 writes it, with nanoseconds.
pub(crate) fn time_word(t: Timestamp) -> String {
    let (days, secs) = (t.secs.div_euclid(86_400), t.secs.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (secs / 3600, secs / 60 % 60, secs % 60);
    format!(
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:09}Z",
        t.nanos
    )
}

/// The date of a day since 1970. Counts in years that begin in March, so that leap days come last.
fn civil(days: i64) -> (i64, i64, i64) {
    /// Days from March 1 of year 0 to January 1, 1970; of 400 years; of 100; of 4; of 1.
    const EPOCH: i64 = 719_468;
    const Y400: i64 = 146_097;
    const Y100: i64 = 36_524;
    const Y4: i64 = 1461;
    let days = days + EPOCH;
    let (cycles, rest) = (days.div_euclid(Y400), days.rem_euclid(Y400));
    let centuries = (rest / Y100).min(3);
    let rest = rest - centuries * Y100;
    let fours = rest / Y4;
    let rest = rest - fours * Y4;
    let ones = (rest / 365).min(3);
    let day_of_year = rest - ones * 365;
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let year = cycles * 400 + centuries * 100 + fours * 4 + ones;
    if month < 10 {
        (year, month + 3, day)
    } else {
        (year + 1, month - 9, day)
    }
}

/// A number of bytes with a unit, for display.
pub(crate) fn size_word(bytes: u64) -> String {
    let mut unit = 0;
    let mut scaled = bytes;
    while scaled >= 10_240 && unit < 5 {
        scaled /= 1024;
        unit += 1;
    }
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    format!("{scaled} {}", units[unit])
}

/// Attributes for programs.
pub(crate) fn metadata_json(metadata: &Metadata) -> Value {
    attr_json(metadata.attr())
}

/// As [`metadata_json`].
pub(crate) fn attr_json(attr: &Attr) -> Value {
    let time = |t: Timestamp| json!({ "secs": t.secs, "nanos": t.nanos });
    let (major, minor) = device_numbers(attr.rdev);
    json!({
        "ino": attr.ino.get(),
        "generation": attr.generation,
        "kind": kind_word(attr.kind),
        "mode": format!("{:04o}", attr.perm),
        "nlink": attr.nlink,
        "uid": attr.uid,
        "gid": attr.gid,
        "major": major,
        "minor": minor,
        "size": attr.size,
        "blocks": attr.blocks,
        "atime": time(attr.atime),
        "mtime": time(attr.mtime),
        "ctime": time(attr.ctime),
        "crtime": attr.crtime.map(time),
    })
}

/// Enters bytes as text for programs. Where they are not UTF-8, what is not is replaced, and all of
/// them follow as hexadecimal digits, under the key with `_hex` behind it.
pub(crate) fn enter(object: &mut Value, key: &str, bytes: &[u8]) {
    object[key] = Value::from(lossy(bytes));
    if str::from_utf8(bytes).is_err() {
        object[format!("{key}_hex")] = Value::from(hex(bytes));
    }
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes as text; what is not UTF-8 is replaced.
pub(crate) fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_read_as_in_ls() {
        assert_eq!(mode_word(FileKind::Regular, 0o4755), "-rwsr-xr-x");
        assert_eq!(mode_word(FileKind::Directory, 0o1777), "drwxrwxrwt");
        assert_eq!(mode_word(FileKind::Regular, 0o7000), "---S--S--T");
    }

    #[test]
    fn programs_get_every_byte_of_a_name() {
        let mut object = json!({});
        enter(&mut object, "name", b"plain");
        enter(&mut object, "target", b"a\xff");
        let right = json!({ "name": "plain", "target": "a\u{fffd}", "target_hex": "61ff" });
        assert_eq!(object, right);
    }

    #[test]
    fn dates_are_right_across_leap_years_and_the_epoch() {
        let at = |secs| time_word(Timestamp { secs, nanos: 5 });
        assert_eq!(at(0), "1970-01-01T00:00:00.000000005Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00.000000005Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00.000000005Z");
        assert_eq!(at(-1), "1969-12-31T23:59:59.000000005Z");
        assert_eq!(at(15_032_385_535), "2446-05-10T22:38:55.000000005Z");
        assert_eq!(at(-2_147_483_648), "1901-12-13T20:45:52.000000005Z");
    }
}
