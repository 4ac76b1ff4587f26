//! The ledger as text, for recordings: a line per file and promise, a line per claim below its
//! promise.

use crate::ledger::{Claim, File, Ledger, Promise, sectors_from_text, sectors_to_text};
use crate::moves::Origin;

/// Writes what [`read`] needs to judge states again.
pub(crate) fn write(ledger: &Ledger) -> String {
    let mut lines = Vec::new();
    for (id, file) in &ledger.files {
        let ever = sectors_to_text(&file.ever);
        let cuts = numbers_to_text(&file.ever_cut);
        lines.push(format!("file {id} {} {cuts} {ever}", file.longest));
        for (version, was) in &file.moved {
            let (from, root, by) = (was.file.unwrap_or(*id), was.version, was.by);
            lines.push(format!("moved {id} {version} {from} {root} {by}"));
        }
    }
    for promise in &ledger.promises {
        lines.push(format!("promise {} {}", promise.from, promise.until));
        lines.extend(promise.any.iter().map(claim_to_text));
    }
    lines.join("\n")
}

fn claim_to_text(claim: &Claim) -> String {
    match claim {
        Claim::Holds {
            path,
            file,
            min,
            max,
            cuts,
            allowed,
        } => {
            let (cuts, allowed) = (numbers_to_text(cuts), sectors_to_text(allowed));
            format!("holds {path} {file} {min} {max} {cuts} {allowed}")
        }
        Claim::Attr {
            path,
            file,
            key,
            allowed,
        } => {
            let seeds = allowed.iter().map(|seed| match seed {
                Some(seed) => seed.to_string(),
                None => "none".into(),
            });
            let seeds: Vec<String> = seeds.collect();
            format!("attr {path} {file} {key} {}", seeds.join("/"))
        }
        Claim::Space { path, file, least } => format!("space {path} {file} {least}"),
        Claim::Gone { path } => format!("gone {path}"),
    }
}

/// A ledger that judges as the one that was written; it cannot be added to.
pub(crate) fn read(text: &str) -> Result<Ledger, String> {
    let mut ledger = Ledger::default();
    for line in text.lines() {
        read_line(&mut ledger, line).ok_or_else(|| format!("not understood: {line}"))?;
    }
    Ok(ledger)
}

fn read_line(ledger: &mut Ledger, line: &str) -> Option<()> {
    let words: Vec<&str> = line.split(' ').collect();
    let claim = match words[..] {
        ["file", id, longest, cuts, ever] => {
            let file = File {
                longest: longest.parse().ok()?,
                ever_cut: numbers_from_text(cuts)?,
                ever: sectors_from_text(ever)?,
                ..File::default()
            };
            ledger.files.insert(id.parse().ok()?, file);
            return Some(());
        }
        ["promise", from, until] => {
            ledger.promises.push(Promise {
                any: Vec::new(),
                from: from.parse().ok()?,
                until: until.parse().ok()?,
            });
            return Some(());
        }
        ["holds", path, file, min, max, cuts, allowed] => Claim::Holds {
            path: path.into(),
            file: file.parse().ok()?,
            min: min.parse().ok()?,
            max: max.parse().ok()?,
            cuts: numbers_from_text(cuts)?,
            allowed: sectors_from_text(allowed)?,
        },
        ["attr", path, file, key, seeds] => {
            let seed = |text: &str| match text {
                "none" => Some(None),
                text => text.parse().ok().map(Some),
            };
            Claim::Attr {
                path: path.into(),
                file: file.parse().ok()?,
                key: key.into(),
                allowed: seeds.split('/').map(seed).collect::<Option<_>>()?,
            }
        }
        ["moved", id, version, from, root, by] => {
            let file = ledger.files.get_mut(&id.parse().ok()?)?;
            let was = Origin {
                file: (from != id).then(|| from.parse().ok()).flatten(),
                version: root.parse().ok()?,
                by: by.parse().ok()?,
            };
            file.moved.insert(version.parse().ok()?, was);
            return Some(());
        }
        ["space", path, file, least] => Claim::Space {
            path: path.into(),
            file: file.parse().ok()?,
            least: least.parse().ok()?,
        },
        ["gone", path] => Claim::Gone { path: path.into() },
        _ => return None,
    };
    ledger.promises.last_mut()?.any.push(claim);
    Some(())
}

fn numbers_to_text(numbers: &[u64]) -> String {
    let texts = numbers.iter().map(u64::to_string);
    std::iter::once("-".into())
        .chain(texts)
        .collect::<Vec<_>>()
        .join(",")
}

fn numbers_from_text(text: &str) -> Option<Vec<u64>> {
    text.split(',').skip(1).map(|n| n.parse().ok()).collect()
}

#[cfg(test)]
use crate::moves::Move;

#[test]
fn a_ledger_judges_the_same_after_a_round_trip() {
    let mut ledger = Ledger::default();
    let id = ledger.create("d/a", 3);
    ledger.append(id, 5000, 4);
    ledger.synced("d/a", 9);
    ledger.set_attr(id, "user.k", Some(7), 11);
    ledger.overwrite(id, 512, 1024, 12);
    ledger.synced("d/a", 20);
    ledger.resize(id, 700, 20);
    ledger.set_attr(id, "user.k", None, 21);
    ledger.rename("d/a", "b", 22);
    let how = Move::In(0..2);
    ledger.range(id, 25, true, |file| file.shift(&how));
    ledger.synced("b", 27);
    let other = ledger.create("other", 27);
    ledger.overwrite(other, 0, 2048, 27);
    ledger.copy((id, 1), (other, 2), 2, 28);
    ledger.unlink("b", 30);
    ledger.all_synced(31);
    let again = read(&write(&ledger)).unwrap();
    assert_eq!(again.promises, ledger.promises);
    assert_eq!(again.file(id).ever, ledger.file(id).ever);
    assert_eq!(again.file(id).moved, ledger.file(id).moved);
    assert!(!again.file(id).moved.is_empty());
    assert_eq!(again.file(other).moved, ledger.file(other).moved);
    assert!(!again.file(other).moved.is_empty());
    assert_eq!(again.file(id).longest, 5000);
    assert!(ledger.promises.len() >= 7, "{:#?}", ledger.promises);
}
