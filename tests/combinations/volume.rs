//! A volume of a combination: made, mounted with its key, and judged.

use std::fs;

use extant_testkit::{
    Cmd, Context, Image, Mount, Result, Subject, TempDir, encryption, ensure, tools,
};

use crate::draw::Combination;
use crate::listing::Listing;

/// A key of encrypted files, and the directory that it encrypts where a volume has any.
pub(super) struct Key {
    dir: TempDir,
    name: &'static str,
}

impl Key {
    const BYTES: [u8; 64] = *b"sixty-four bytes that are the master key of all the combinations";

    pub(super) fn new() -> Result<Self> {
        let dir = TempDir::new("combinations")?;
        fs::write(dir.join("key"), Self::BYTES)?;
        let name = "secret";
        Ok(Self { dir, name })
    }

    /// Mounts an image, with the key if it has encrypted files; Extant's first mount makes their
    /// directory.
    pub(super) fn mount(
        &self,
        side: Subject,
        image: &std::path::Path,
        (drawn, options): (&Combination, &str),
    ) -> Result<Mount> {
        let mount = side.mount(image, options)?;
        if !drawn.has("encrypt") {
            return Ok(mount);
        }
        if side == Subject::Ext4 {
            encryption::add_key(mount.dir(), &Self::BYTES)?;
            return Ok(mount);
        }
        let key = || Cmd::new(tools::extant().unwrap_or_default()).arg("key");
        let file = self.dir.join("key");
        key().arg("add").arg(mount.dir()).arg(&file).ok()?;
        let secret = mount.dir().join(self.name);
        if !secret.exists() {
            fs::create_dir(&secret)?;
            key()
                .args(["encrypt", "--key"])
                .arg(&file)
                .arg(&secret)
                .ok()?;
        }
        Ok(mount)
    }

    /// The tree of the volume as `side` shows it.
    pub(super) fn shown_by(
        &self,
        side: Subject,
        image: &std::path::Path,
        drawn: &Combination,
    ) -> Result<Listing> {
        let mount = self.mount(side, image, (drawn, "ro"))?;
        let listing = Listing::take(mount.dir())?;
        mount.unmount()?;
        Ok(listing)
    }
}

/// Makes a volume; `None` if these arguments make none.
pub(super) fn made(drawn: &Combination) -> Result<Option<Image>> {
    let image = Image::of_mib(48);
    if !drawn.by_extant {
        return Ok(image.args(&drawn.args).make().ok());
    }
    let image = image.empty()?;
    let made = Cmd::new(tools::extant()?).args(["mkfs", "-q"]);
    let made = made.args(drawn.args.split_whitespace());
    let made = made.arg(image.path()).run()?;
    Ok((made.code == Some(0)).then_some(image))
}

/// Both checkers find nothing wrong.
pub(super) fn is_sound(image: &Image) -> Result<()> {
    image.fsck_clean()?;
    Cmd::new(tools::extant()?)
        .arg("check")
        .arg(image.path())
        .ok()?;
    Ok(())
}

/// The same of what a storm by `side` left, but for what Linux is known to leave. Returns whether
/// the volume shows the same as before this look.
pub(super) fn is_sound_after(side: Subject, image: &Image, drawn: &Combination) -> Result<bool> {
    let told = || format!("after {}", side.name());
    let recounted = side == Subject::Ext4 && repair_after_linux(image, drawn).context(told)?;
    is_sound(image).context(told)?;
    Ok(!recounted)
}

/// Has e2fsck repair what Linux is known to leave, and accepts no other repair. Returns whether the
/// blocks of a file were counted again.
///
/// - Users of a value in a shared block of attributes are counted more than once.
/// - Without `filetype` a byte of `..` is not written, and keeps what the block had of it.
/// - With `inline_data`, Linux 6.1 now and then counts one block of a file too few.
pub(super) fn repair_after_linux(image: &Image, drawn: &Combination) -> Result<bool> {
    if image.fsck_clean().is_ok() {
        return Ok(false);
    }
    let said = image.fsck_repair()?;
    let (mut before, mut recounted) = ("", false);
    for line in said.out.lines() {
        let cause = std::mem::replace(&mut before, line);
        if !line.ends_with("? yes") {
            continue;
        }
        recounted |= drawn.has("inline_data") && line.contains(", i_blocks is ");
        let known = line.contains(" ref count is ")
            || (line == "Clear? yes" && cause.ends_with("has filetype set."))
            || (recounted && line.contains(", i_blocks is "))
            || (recounted && line.starts_with("Update quota info"));
        ensure!(
            known,
            "e2fsck had to repair: {cause}\n{line}\n{}",
            said.describe()
        );
    }
    Ok(recounted)
}
