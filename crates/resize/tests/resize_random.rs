//! Random volumes, grown and shrunk at random: sound for e2fsck, with what they held.
//!
//! `EXTANT_RESIZES` (100) is the number of volumes, `EXTANT_SEED` (0) the first seed. A failure
//! prints the seed that repeats it.

mod resize_kit;

use extant_resize::{Error, Target};
use extant_testkit::{Context, Image, Need, Result, Rng, ensure, need, report};
use resize_kit::{content_of, fill, resized, run};

const NEEDS: &[Need] = resize_kit::NEEDS;

fn from_env(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[derive(Default, Debug)]
struct Totals {
    grown: u64,
    shrunk: u64,
    least: u64,
    refused: u64,
    blocks_moved: u64,
    inodes_moved: u64,
}

/// Features that a volume may have or not.
const SWITCHES: &[&str] = &[
    "extent",
    "64bit",
    "metadata_csum",
    "flex_bg",
    "resize_inode",
    "has_journal",
    "sparse_super",
    "meta_bg",
    "dir_index",
    "huge_file",
    "uninit_bg",
    "orphan_file",
    "metadata_csum_seed",
    "inline_data",
];

/// Arguments of mke2fs for a volume of some features, with a size in MiB.
fn arguments(rng: &mut Rng) -> (u64, String) {
    let bs: u64 = 1024 << rng.below(7);
    let mut features: Vec<String> = Vec::new();
    let mut off = Vec::new();
    for switch in SWITCHES {
        if rng.chance(20) {
            off.push(*switch);
        }
    }
    let without = |name: &str| off.contains(&name);
    let spread = rng.chance(25);
    for switch in SWITCHES {
        let needs_on = match *switch {
            "orphan_file" => rng.chance(50) && !without("has_journal"),
            "metadata_csum_seed" => rng.chance(30) && !without("metadata_csum"),
            "inline_data" => rng.chance(25),
            "uninit_bg" => without("metadata_csum") && rng.chance(60),
            "meta_bg" => spread,
            "resize_inode" => !spread && !without("sparse_super") && !without("resize_inode"),
            name => !without(name),
        };
        let sign = if needs_on { "" } else { "^" };
        features.push(format!("{sign}{switch}"));
    }
    if rng.chance(10) {
        features.retain(|feature| !feature.ends_with("resize_inode"));
        features.push("^resize_inode,sparse_super2".into());
    }
    let mut args = format!("-b {bs} -O {}", features.join(","));
    if rng.chance(50) {
        args += &format!(" -g {}", (rng.between(4, 64) * 128).max(256).min(bs * 8));
    }
    if rng.chance(50) {
        args += &format!(" -I {}", [128, 256, 512][rng.index(3)]);
    }
    args += &format!(" -N {}", rng.between(100, 900));
    // As many blocks of a larger size.
    (rng.between(6, 40) * (bs / 4096).max(1), args)
}

#[test]
fn random_volumes_are_resized() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let first = from_env("EXTANT_SEED", 0) << 20;
    let count = from_env("EXTANT_RESIZES", 100);
    let (mut totals, mut wrong) = (Totals::default(), Vec::new());
    for seed in first..first + count {
        let mut rng = Rng::new(seed);
        let (mib, args) = arguments(&mut rng);
        if let Err(error) = one(mib, &args, &mut rng, &mut totals)
            .context(|| format!("seed {seed}, {mib} MiB, {args}"))
        {
            wrong.push(error.to_string());
        }
    }
    report(&format!("{count} volumes: {totals:?}"));
    ensure!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    let some = count / 20;
    ensure!(
        totals.grown > some && totals.shrunk > some && totals.least > some,
        "{totals:?}"
    );
    Ok(())
}

fn one(mib: u64, args: &str, rng: &mut Rng, totals: &mut Totals) -> Result<()> {
    // Some combinations are none: mke2fs says so.
    let Ok(image) = Image::of_mib(mib).args(args).make() else {
        return Ok(());
    };
    let share = rng.between(5, 90);
    fill(&image, rng, share)?;
    let mut now = mib << 20;
    for step in 0..3 {
        let target = match rng.below(4) {
            0 => Target::Least,
            1 => Target::Bytes(now * rng.between(40, 99) / 100 + rng.below(5000)),
            _ => Target::Bytes(now * rng.between(101, 700) / 100 + rng.below(5000)),
        };
        let done = step_to(&image, target, totals).context(|| format!("step {step}, {target:?}"));
        now = done?.unwrap_or(now);
    }
    Ok(())
}

/// One resize; the size then, unless it is refused.
fn step_to(image: &Image, target: Target, totals: &mut Totals) -> Result<Option<u64>> {
    let before = content_of(image)?;
    let fingerprint = image.fingerprint()?;
    let tried = image.copy()?;
    match run(&tried, target) {
        Err(error @ (Error::TooSmall { .. } | Error::NoRoom(_) | Error::NoGroup)) => {
            // Blocks that are not used may have been written.
            tried.fsck_clean()?;
            ensure!(
                content_of(&tried)? == before,
                "{error}: the content has changed"
            );
            ensure!(image.fingerprint()? == fingerprint, "{error}");
            if let Error::TooSmall { least } = error {
                // Where what is free lies scattered, the least may not do.
                match run(&tried.copy()?, Target::Bytes(least)) {
                    Err(Error::NoRoom(_)) => {}
                    _ => drop(resized(&tried, Target::Bytes(least)).context(|| least)?),
                }
            }
            totals.refused += 1;
            return Ok(None);
        }
        Err(Error::Unsupported(_) | Error::TooLarge { .. }) => {
            tried.fsck_clean()?;
            totals.refused += 1;
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
        Ok(_) => {}
    }
    let report = resized(image, target)?;
    match target {
        Target::Least => totals.least += 1,
        _ if report.blocks < report.blocks_before => totals.shrunk += 1,
        _ => totals.grown += 1,
    }
    totals.blocks_moved += report.blocks_moved;
    totals.inodes_moved += report.inodes_moved;
    Ok(Some(report.bytes()))
}
