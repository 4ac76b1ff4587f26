//! Volumes whose inodes keep their numbers.

mod resize_kit;

use extant_resize::Target;
use extant_testkit::{Image, Result, Rng, ensure, need};
use resize_kit::{NEEDS, fill, resized, run};

const MIB: u64 = 1 << 20;

/// With `stable_inodes` every name leads to the same number afterwards, whatever moves, and a size
/// that would cut an inode off is refused before anything is written.
#[test]
fn stable_inodes_keep_their_numbers() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let args = "-b 1024 -g 2048 -N 512 -O stable_inodes,^flex_bg";
    let image = Image::of_mib(16).args(args).make()?;
    fill(&image, &mut Rng::new(7), 5)?;
    let numbers = |image: &Image| -> Result<String> {
        let fs = extant::Filesystem::open(image.path())?;
        let mut all = String::new();
        for entry in fs.walk_dir("/")? {
            let entry = entry?;
            all += &format!("{} {}\n", entry.ino(), entry.path().display());
        }
        Ok(all)
    };
    let (before, right) = (image.fingerprint()?, numbers(&image)?);
    ensure!(right.lines().count() > 60, "{right}");
    let refused = run(&image, Target::Bytes(3 * MIB));
    let told = refused
        .err()
        .map(|error| error.to_string())
        .unwrap_or_default();
    ensure!(told.contains("stable_inodes"), "{told}");
    ensure!(image.fingerprint()? == before, "written");
    let grown = resized(&image, Target::Bytes(26 * MIB))?;
    ensure!(numbers(&image)? == right, "{grown:?}");
    // Groups without inodes go, with the blocks in them.
    let free = extant::Options::new().write(true).open(image.path())?;
    free.write("/late", vec![3; 1 << 17])?;
    free.unmount()?;
    let right = numbers(&image)?;
    let cut = resized(&image, Target::Least)?;
    ensure!(
        cut.inodes_moved == 0 && cut.blocks < cut.blocks_before,
        "{cut:?}"
    );
    ensure!(numbers(&image)? == right, "{cut:?}");
    // Without the feature there is a smaller one.
    let other = image.copy()?;
    other.debugfs_write("feature -stable_inodes")?;
    let least = resized(&other, Target::Least)?;
    ensure!(
        least.inodes_moved > 0 && least.blocks < cut.blocks,
        "{least:?}, {cut:?}"
    );
    Ok(())
}
