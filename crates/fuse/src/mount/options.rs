//! `-o`: which words are the kernel's, which are FUSE's, and which are left to the file system.
//!
//! Linux's own names are kept. Words for mount(8) and fstab alone are accepted and have no effect;
//! unknown words are handed on, and the file system refuses them by name.

use rustix::mount::MountFlags;

/// How requests come from the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Transport {
    /// Over rings of io_uring where the kernel allows it, by `/dev/fuse` otherwise.
    #[default]
    Auto,
    /// Over rings, or not at all.
    Uring,
    /// By `/dev/fuse`.
    Dev,
}

/// The mount options, sorted by the part that reads them.
#[derive(Clone, Debug)]
pub struct MountOptions {
    read_only: bool,
    flags: MountFlags,
    /// Words for `fusermount3`, which makes flags of them.
    flag_words: Vec<String>,
    allow_other: bool,
    /// The kernel checks permissions, not the server.
    kernel_checks: bool,
    fs_name: Option<String>,
    subtype: Option<String>,
    max_read: Option<u32>,
    writeback: bool,
    strict_open: bool,
    sandbox: bool,
    memory: Option<String>,
    layer: Option<String>,
    record: Option<String>,
    prefetch: Option<String>,
    transport: Transport,
    engine: Vec<String>,
}

/// A word that makes no sense.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OptionError {
    /// The value is not one that the option takes.
    #[error("mount option {0}: bad value")]
    BadValue(String),
    /// Known, but not done here.
    #[error("mount option {0}: not supported, use {1}")]
    Unsupported(String, &'static str),
    /// Two words that exclude each other.
    #[error("mount option {0}: not together with {1}")]
    Excluded(&'static str, &'static str),
}

/// Words with a flag of mount(2), and whether they set it.
const FLAGS: [(&str, MountFlags, bool); 19] = [
    ("suid", MountFlags::NOSUID, false),
    ("nosuid", MountFlags::NOSUID, true),
    ("dev", MountFlags::NODEV, false),
    ("nodev", MountFlags::NODEV, true),
    ("exec", MountFlags::NOEXEC, false),
    ("noexec", MountFlags::NOEXEC, true),
    ("async", MountFlags::SYNCHRONOUS, false),
    ("sync", MountFlags::SYNCHRONOUS, true),
    ("dirsync", MountFlags::DIRSYNC, true),
    ("atime", MountFlags::NOATIME, false),
    ("noatime", MountFlags::NOATIME, true),
    ("diratime", MountFlags::NODIRATIME, false),
    ("nodiratime", MountFlags::NODIRATIME, true),
    ("relatime", MountFlags::RELATIME, true),
    ("norelatime", MountFlags::RELATIME, false),
    ("strictatime", MountFlags::STRICTATIME, true),
    ("nostrictatime", MountFlags::STRICTATIME, false),
    ("lazytime", MountFlags::LAZYTIME, true),
    ("nolazytime", MountFlags::LAZYTIME, false),
];

/// Flags whose words the file system reads too: the kernel leaves times and durability to it.
const SHARED_FLAGS: MountFlags = MountFlags::SYNCHRONOUS
    .union(MountFlags::DIRSYNC)
    .union(MountFlags::NOATIME)
    .union(MountFlags::NODIRATIME)
    .union(MountFlags::RELATIME)
    .union(MountFlags::STRICTATIME)
    .union(MountFlags::LAZYTIME);

/// Flags that not every `fusermount3` knows. They say nothing to a FUSE mount's kernel side anyway.
const LATE_FLAGS: MountFlags = MountFlags::NODIRATIME
    .union(MountFlags::RELATIME)
    .union(MountFlags::STRICTATIME)
    .union(MountFlags::LAZYTIME);

/// Words for mount(8), fstab and systemd.
const IGNORED: [&str; 17] = [
    "", "defaults", "auto", "noauto", "user", "nouser", "users", "nousers", "owner", "noowner",
    "group", "nogroup", "_netdev", "nofail", "nonempty", "silent", "loud",
];
/// Beginnings of more of them.
const IGNORED_PREFIXES: [&str; 5] = ["x-", "X-", "comment=", "uhelper=", "helper="];

impl Default for MountOptions {
    /// Read-write, without set-id programs and device nodes, for the mounting user alone.
    fn default() -> Self {
        Self {
            read_only: false,
            flags: MountFlags::NOSUID | MountFlags::NODEV,
            flag_words: Vec::new(),
            allow_other: false,
            kernel_checks: true,
            fs_name: None,
            subtype: None,
            max_read: None,
            writeback: true,
            strict_open: true,
            sandbox: true,
            memory: None,
            layer: None,
            record: None,
            prefetch: None,
            transport: Transport::default(),
            engine: Vec::new(),
        }
    }
}

impl MountOptions {
    /// Reads one `-o` argument: words between commas. Later words win. A comma inside of a value is
    /// written `\,`.
    ///
    /// # Errors
    /// See [`OptionError`]. A word unknown here is no error: it is left in
    /// [`MountOptions::engine`].
    pub fn add(&mut self, words: &str) -> Result<(), OptionError> {
        for word in split(words) {
            self.add_word(&word)?;
        }
        Ok(())
    }

    /// Checks that the words go together. Call it after the last of them was added.
    ///
    /// # Errors
    /// [`OptionError::Excluded`]: a path that the kernel has cached is walked without a check by
    /// the server, so no other user may be on such a mount.
    pub fn check(&self) -> Result<(), OptionError> {
        match !self.kernel_checks && self.allow_other {
            true => Err(OptionError::Excluded(
                "nodefault_permissions",
                "allow_other",
            )),
            false => Ok(()),
        }
    }

    fn add_word(&mut self, word: &str) -> Result<(), OptionError> {
        let (key, value) = word
            .split_once('=')
            .map_or((word, None), |(k, v)| (k, Some(v)));
        let bad = || OptionError::BadValue(word.to_owned());
        match (key, value) {
            ("ro", None) => self.read_only = true,
            ("rw", None) => {
                self.read_only = false;
                // A volume that can only be read is refused then.
                self.engine.push(word.to_owned());
            }
            ("allow_other", None) => self.allow_other = true,
            ("default_permissions", None) => self.kernel_checks = true,
            ("nodefault_permissions", None) => self.kernel_checks = false,
            ("allow_root", None) => {
                return Err(OptionError::Unsupported(word.to_owned(), "allow_other"));
            }
            ("auto_unmount", None) => {
                return Err(OptionError::Unsupported(word.to_owned(), "extant umount"));
            }
            ("remount", None) => {
                let instead = "mount -o remount DIR for flags, or extant umount and extant mount";
                return Err(OptionError::Unsupported(word.to_owned(), instead));
            }
            ("fsname", Some(name)) if !name.is_empty() => self.fs_name = Some(name.to_owned()),
            ("subtype", Some(name)) if !name.is_empty() && !name.contains(['.', '/']) => {
                self.subtype = Some(name.to_owned());
            }
            ("fsname" | "subtype", _) => return Err(bad()),
            ("max_read", value) => {
                let bytes = value.and_then(|v| v.parse().ok()).filter(|&n| n >= 4096);
                self.max_read = Some(bytes.ok_or_else(bad)?);
            }
            ("writeback_cache", None) => self.writeback = true,
            ("nowriteback_cache", None) => self.writeback = false,
            ("sandbox", None) => self.sandbox = true,
            ("nosandbox", None) => self.sandbox = false,
            ("memory", Some(size)) if !size.is_empty() => self.memory = Some(size.to_owned()),
            ("memory", _) => return Err(bad()),
            ("layer", Some(file)) if !file.is_empty() => self.layer = Some(file.to_owned()),
            ("record", Some(file)) if !file.is_empty() => self.record = Some(file.to_owned()),
            ("prefetch", Some(file)) if !file.is_empty() => self.prefetch = Some(file.to_owned()),
            ("layer" | "record" | "prefetch", _) => return Err(bad()),
            ("transport", value) => {
                self.transport = match value {
                    Some("auto") => Transport::Auto,
                    Some("uring") => Transport::Uring,
                    Some("dev") => Transport::Dev,
                    _ => return Err(bad()),
                };
            }
            ("strict_open", None) => self.strict_open = true,
            ("nostrict_open", None) => self.strict_open = false,
            _ => {
                if let Some(&(_, flag, on)) = FLAGS.iter().find(|(name, ..)| *name == word) {
                    self.flags.set(flag, on);
                    if !LATE_FLAGS.contains(flag) {
                        self.flag_words.push(word.to_owned());
                    }
                    if SHARED_FLAGS.contains(flag) {
                        self.engine.push(word.to_owned());
                    }
                } else if !is_ignored(word) {
                    self.engine.push(word.to_owned());
                }
            }
        }
        Ok(())
    }

    /// The options of a mount with the flags `present` after a remount with `words`, and the words
    /// that a remount cannot change.
    pub(super) fn changed(present: &str, words: &str) -> (MountOptions, Vec<String>) {
        let mut options = MountOptions {
            flags: MountFlags::empty(),
            ..MountOptions::default()
        };
        let flag_of = |word: &str| FLAGS.iter().find(|(name, ..)| *name == word);
        for word in split(present) {
            match flag_of(&word) {
                Some(&(_, flag, on)) => options.flags.set(flag, on),
                None => options.read_only |= word == "ro",
            }
        }
        let before = options.flags;
        let mut left = Vec::new();
        for word in split(words) {
            match (word.as_str(), flag_of(&word)) {
                ("remount", _) => {}
                ("ro" | "rw", _) => options.read_only = word == "ro",
                (_, Some(&(_, flag, on))) if SHARED_FLAGS.contains(flag) => {
                    // The file system goes by them as well, and does not hear of a remount.
                    if before.contains(flag) != on {
                        left.push(word);
                    }
                }
                (_, Some(&(_, flag, on))) => options.flags.set(flag, on),
                (word, None) if is_ignored(word) => {}
                _ => left.push(word),
            }
        }
        (options, left)
    }

    /// Whether the mount refuses changes.
    pub fn read_only(&self) -> bool {
        self.read_only
    }

    /// Makes the mount refuse changes.
    pub fn set_read_only(&mut self) {
        self.read_only = true;
    }

    /// Whether the daemon confines itself.
    pub fn sandbox(&self) -> bool {
        self.sandbox
    }

    /// The file with what changes an image in an object store.
    pub fn layer(&self) -> Option<&str> {
        self.layer.as_deref()
    }

    /// The file for the list of what is read of an image in an object store.
    pub fn record(&self) -> Option<&str> {
        self.record.as_deref()
    }

    /// The file with the list of what is read ahead of an image in an object store.
    pub fn prefetch(&self) -> Option<&str> {
        self.prefetch.as_deref()
    }

    /// The bound of the caches' memory, as it was written.
    pub fn memory(&self) -> Option<&str> {
        self.memory.as_deref()
    }

    /// The words that are left for the file system, separated by commas.
    pub fn engine(&self) -> String {
        self.engine.join(",")
    }

    /// Returns whether the kernel checks permissions. Where nothing can be changed it always does.
    pub fn kernel_checks(&self) -> bool {
        self.kernel_checks || self.read_only
    }

    pub(crate) fn writeback(&self) -> bool {
        self.writeback
    }

    pub(crate) fn strict_open(&self) -> bool {
        self.strict_open
    }

    pub(crate) fn transport(&self) -> Transport {
        self.transport
    }

    pub(super) fn subtype(&self) -> &str {
        self.subtype.as_deref().unwrap_or("extant")
    }

    pub(super) fn fs_name<'a>(&'a self, source: &'a str) -> &'a str {
        self.fs_name.as_deref().unwrap_or(source)
    }

    pub(super) fn mount_flags(&self) -> MountFlags {
        let mut flags = self.flags;
        flags.set(MountFlags::RDONLY, self.read_only);
        flags
    }

    /// Options of the connection, as mount(2)'s data has them.
    pub(super) fn connection_words(&self) -> Vec<String> {
        let mut words = Vec::new();
        if self.kernel_checks() {
            words.push("default_permissions".to_owned());
        }
        if self.allow_other {
            words.push("allow_other".to_owned());
        }
        if let Some(bytes) = self.max_read {
            words.push(format!("max_read={bytes}"));
        }
        words
    }

    /// Everything, as `fusermount3 -o` takes it.
    pub(super) fn helper_words(&self, source: &str) -> String {
        let escaped = self
            .fs_name(source)
            .replace('\\', "\\\\")
            .replace(',', "\\,");
        let mut words = self.connection_words();
        words.push(format!("fsname={escaped}"));
        words.push(format!("subtype={}", self.subtype()));
        words.push(if self.read_only { "ro" } else { "rw" }.to_owned());
        words.extend(self.flag_words.iter().cloned());
        words.join(",")
    }
}

/// Whether a word is for mount(8), fstab or systemd alone.
fn is_ignored(word: &str) -> bool {
    let begins = |prefix: &&str| word.starts_with(*prefix);
    IGNORED.contains(&word) || IGNORED_PREFIXES.iter().any(begins)
}

/// Splits at commas that no backslash precedes, and removes those backslashes.
fn split(words: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut word = String::new();
    let mut chars = words.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            ',' => all.push(std::mem::take(&mut word)),
            '\\' if chars.peek() == Some(&',') => word.extend(chars.next()),
            c => word.push(c),
        }
    }
    all.push(word);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> MountOptions {
        let mut options = MountOptions::default();
        options.add(words).unwrap();
        options
    }

    #[test]
    fn words_go_where_they_are_read() {
        let options =
            parse("ro,noatime,allow_other,commit=7,errors=remount-ro,defaults,x-systemd.automount");
        assert!(options.read_only());
        assert_eq!(options.engine(), "noatime,commit=7,errors=remount-ro");
        assert!(
            options
                .mount_flags()
                .contains(MountFlags::RDONLY | MountFlags::NOATIME)
        );
        assert_eq!(
            options.connection_words(),
            ["default_permissions", "allow_other"]
        );
    }

    #[test]
    fn permissions_are_left_to_the_server_of_one_user() {
        let options = parse("nodefault_permissions");
        assert_eq!(options.connection_words(), Vec::<String>::new());
        assert!(options.check().is_ok() && options.engine().is_empty());
        let options = parse("nodefault_permissions,default_permissions,allow_other");
        assert!(options.check().is_ok() && options.kernel_checks());
        for words in [
            "allow_other,nodefault_permissions",
            "nodefault_permissions,allow_other",
        ] {
            let error = parse(words).check().unwrap_err().to_string();
            assert!(error.ends_with("not together with allow_other"), "{error}");
        }
        let options = parse("nodefault_permissions,ro");
        assert_eq!(options.connection_words(), ["default_permissions"]);
    }

    #[test]
    fn later_words_win_and_set_id_is_off_unless_asked_for() {
        assert!(
            parse("")
                .mount_flags()
                .contains(MountFlags::NOSUID | MountFlags::NODEV)
        );
        let options = parse("suid,dev,ro,rw,noexec,exec");
        assert_eq!(options.mount_flags(), MountFlags::empty());
    }

    #[test]
    fn the_transport_is_ours_to_choose() {
        assert_eq!(parse("").transport(), Transport::Auto);
        let options = parse("transport=dev,transport=uring,commit=9");
        assert_eq!(options.transport(), Transport::Uring);
        assert_eq!(options.engine(), "commit=9");
        assert!(!options.helper_words("image").contains("transport"));
    }

    #[test]
    fn names_may_hold_commas() {
        let options = parse(r"fsname=a\,b,subtype=x");
        assert_eq!(options.fs_name("image"), "a,b");
        assert!(
            options
                .helper_words("image")
                .contains(r"fsname=a\,b,subtype=x")
        );
        assert_eq!(parse("").fs_name("image"), "image");
    }

    #[test]
    fn a_remount_changes_flags_and_says_what_stays() {
        let present = "rw,nosuid,nodev,noatime";
        let (options, left) = MountOptions::changed(present, "ro,remount,dev,noexec,noatime,x-a");
        let flags = MountFlags::RDONLY | MountFlags::NOSUID;
        let flags = flags | MountFlags::NOATIME | MountFlags::NOEXEC;
        assert_eq!(options.mount_flags(), flags);
        assert_eq!(left, Vec::<String>::new());
        let (options, left) = MountOptions::changed("ro,relatime", "rw,atime,noatime,commit=9");
        assert_eq!(options.mount_flags(), MountFlags::RELATIME);
        assert_eq!(left, ["noatime", "commit=9"]);
    }

    #[test]
    fn bad_values_are_named() {
        let mut options = MountOptions::default();
        let error = options.add("rw,max_read=12").unwrap_err();
        assert_eq!(error.to_string(), "mount option max_read=12: bad value");
        assert!(options.add("allow_root").is_err());
        assert!(options.add("fsname=").is_err());
        let error = options.add("transport=usb").unwrap_err();
        assert_eq!(error.to_string(), "mount option transport=usb: bad value");
        assert!(options.add("transport").is_err());
        let error = options.add("remount,ro").unwrap_err().to_string();
        assert!(error.contains("umount and extant mount"), "{error}");
    }
}
