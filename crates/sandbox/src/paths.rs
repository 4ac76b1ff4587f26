//! Landlock: no path, no port but the server's, no signal and no abstract socket of others.

use landlock::{
    ABI, Access, AccessFs, AccessNet, NetPort, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, RulesetStatus, Scope,
};

use crate::profile::{Profile, Server};

/// Versions of Landlock, from the latest one with rights that are asked for here.
const VERSIONS: [(ABI, u32); 6] = [
    (ABI::V6, 6),
    (ABI::V5, 5),
    (ABI::V4, 4),
    (ABI::V3, 3),
    (ABI::V2, 2),
    (ABI::V1, 1),
];

/// Takes all that Landlock knows of, and returns the version that is in force, or 0 if the kernel
/// has none.
pub(crate) fn close(profile: &Profile) -> Result<u32, RulesetError> {
    let asked = Ruleset::default()
        .handle_access(AccessFs::from_all(ABI::V6))?
        .handle_access(AccessNet::from_all(ABI::V6))?
        .scope(Scope::from_all(ABI::V6))?;
    let mut rules = asked.create()?;
    if let Some(Server::Tcp(port)) = profile.server {
        rules = rules.add_rule(NetPort::new(port, AccessNet::ConnectTcp))?;
    }
    match rules.restrict_self()?.ruleset {
        RulesetStatus::NotEnforced => Ok(0),
        _ => Ok(version()),
    }
}

/// The latest version whose rights the kernel takes without leaving one out.
fn version() -> u32 {
    let whole = |abi: ABI| -> Result<(), RulesetError> {
        use landlock::{CompatLevel, Compatible};
        let mut asked = Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::from_all(abi))?;
        if !AccessNet::from_all(abi).is_empty() {
            asked = asked.handle_access(AccessNet::from_all(abi))?;
        }
        if !Scope::from_all(abi).is_empty() {
            asked = asked.scope(Scope::from_all(abi))?;
        }
        asked.create().map(drop)
    };
    let found = VERSIONS.iter().find(|(abi, _)| whole(*abi).is_ok());
    found.map_or(0, |&(_, number)| number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::thread;

    /// Landlock by itself, without the filter of calls, in a thread of its own.
    #[test]
    fn no_path_is_left_to_the_thread() {
        let opened = thread::spawn(|| {
            let version = close(&Profile::default()).unwrap();
            let inner = thread::spawn(|| File::open("/etc/passwd").map_err(|e| e.kind()));
            let inner = inner.join().unwrap().map(drop);
            (
                version,
                File::open("/etc/passwd").map_err(|e| e.kind()).map(drop),
                inner,
            )
        });
        let (version, own, inner) = opened.join().unwrap();
        if version > 0 {
            let refused = Err(std::io::ErrorKind::PermissionDenied);
            assert_eq!((own, inner), (refused, refused));
        }
        // The other threads keep theirs: this is why a process confines itself with one thread.
        assert!(File::open("/etc/passwd").is_ok());
    }
}
