//! `extant key`: keys of encrypted files on mounts, and the policies of directories.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use extant::{EncryptionContext, EncryptionPolicy, Error, KeyId, KeyStatus};
use rustix::io::Errno;
use serde_json::{Value, json};

use crate::args::{Key, KeyAction, KeyAdd, KeyEncrypt, KeyOfMount, KeyPolicy, policy_names};
use crate::failure::{At, Failure, Failures, Outcome};
use crate::images::Images;
use crate::key_files;
use crate::operand::Operand;
use crate::output::{Output, enter};

pub(crate) fn run(args: &Key) -> Outcome {
    match &args.action {
        KeyAction::Add(args) => add(args).into(),
        KeyAction::Remove(args) => {
            let state = extant_fuse::remove_key(&args.dir, &args.key);
            tell(args, state).into()
        }
        KeyAction::Status(args) => {
            let state = extant_fuse::key_status(&args.dir, &args.key);
            tell(args, state).into()
        }
        KeyAction::Encrypt(args) => encrypt(args),
        KeyAction::Policy(args) => policies(args),
    }
}

fn add(args: &KeyAdd) -> Result<(), Failure> {
    let key = key_files::read(&args.file)?;
    let id = extant_fuse::add_key(&args.dir, &key, args.descriptor).at(args.dir.display())?;
    let mut out = Output::new();
    out.text(format!("{id}\n"))?;
    out.finish()
}

/// Shows the state of a key.
fn tell(args: &KeyOfMount, state: std::io::Result<KeyStatus>) -> Result<(), Failure> {
    let state = match state.at(args.dir.display())? {
        KeyStatus::Absent => "absent",
        KeyStatus::Present => "present",
        KeyStatus::PartlyRemoved => "partly removed",
    };
    let mut out = Output::new();
    match args.json {
        true => out.json(&json!({ "key": args.key.to_string(), "state": state }))?,
        false => out.text(format!("{state}\n"))?,
    }
    out.finish()
}

fn encrypt(args: &KeyEncrypt) -> Outcome {
    if args.key_id.is_none() && !key_files::is_one_given() {
        return Outcome::Usage("a key is needed: --key-id KEY, or one --key FILE".to_owned());
    }
    let mut failures = Failures::of("key");
    let images = args.paths.iter().filter_map(Operand::image);
    let mut images = Images::write().shared_by(images);
    for at in &args.paths {
        let done = match at {
            Operand::Image(at) => images.of(at).and_then(|fs| {
                let id = match args.key_id {
                    Some(id) => id,
                    None => key_files::add_one_to(fs.volume())?,
                };
                let policy = checked(args, id).at(at)?;
                let set = fs.set_encryption_policy(&at.path, &policy);
                set.map_err(|error| told(at, Some(error.errno()), error))
            }),
            Operand::Host(path) => encrypt_on_host(args, path),
        };
        failures.note(done);
    }
    super::finish(images, failures)
}

fn encrypt_on_host(args: &KeyEncrypt, path: &Path) -> Result<(), Failure> {
    let id = match args.key_id {
        Some(id) => id,
        None => key_files::add_one_to_mount(path)?,
    };
    let policy = checked(args, id).at(path.display())?;
    let set = extant_fuse::set_encryption_policy(path, &policy);
    set.map_err(|error| told(path.display(), error.raw_os_error(), error))
}

/// The policy that is asked for, which there can be.
fn checked(args: &KeyEncrypt, id: KeyId) -> Result<EncryptionPolicy, String> {
    let policy = args.policy(id);
    let checked = policy.check().map(|()| policy);
    checked.map_err(|error| error.to_string())
}

fn policies(args: &KeyPolicy) -> Outcome {
    let mut failures = Failures::of("key");
    let images = args.paths.iter().filter_map(Operand::image);
    let mut images = Images::read().shared_by(images);
    let mut out = Output::new();
    let mut all = Vec::new();
    for at in &args.paths {
        let Some(found) = failures.note(policy_of(&mut images, at)) else {
            continue;
        };
        let path = match at {
            Operand::Image(at) => at.path.as_os_str(),
            Operand::Host(path) => path.as_os_str(),
        };
        if args.json {
            let mut value = found.as_ref().map_or(json!({ "encrypted": false }), object);
            enter(&mut value, "path", path.as_bytes());
            all.push(value);
            continue;
        }
        let line = found.as_ref().map_or("not encrypted".to_owned(), line);
        failures.note(out.text(format!("{line} ")));
        failures.note(out.name(path));
        failures.note(out.text("\n"));
    }
    if args.json {
        failures.note(out.json(&Value::Array(all)));
    }
    failures.note(out.finish());
    super::finish(images, failures)
}

fn policy_of(images: &mut Images, at: &Operand) -> Result<Option<EncryptionContext>, Failure> {
    match at {
        Operand::Image(at) => match images.of(at)?.encryption(&at.path) {
            Err(Error::NoAttribute) => Ok(None),
            found => found.map(Some).at(at),
        },
        Operand::Host(path) => extant_fuse::encryption(path).at(path.display()),
    }
}

fn line(context: &EncryptionContext) -> String {
    let policy = &context.policy;
    let [contents, names, keys] = policy_names(policy);
    let padding = policy.padding.bytes();
    format!("{} {contents} {names} {padding} {keys}", policy.key)
}

fn object(context: &EncryptionContext) -> Value {
    let policy = &context.policy;
    let [contents, names, keys] = policy_names(policy);
    let version = match policy.key {
        KeyId::Descriptor(_) => 1,
        KeyId::Identifier(_) => 2,
    };
    json!({
        "encrypted": true,
        "version": version,
        "key": policy.key.to_string(),
        "contents": contents,
        "names": names,
        "padding": policy.padding.bytes(),
        "keys": keys,
    })
}

/// A failure, in plain words where the error's own mislead.
fn told(
    at: impl std::fmt::Display,
    errno: Option<i32>,
    error: impl std::error::Error + Send + Sync + 'static,
) -> Failure {
    let what = match errno.map(Errno::from_raw_os_error) {
        Some(Errno::EXIST) => "encrypted by another policy",
        Some(Errno::NOTEMPTY) => "not empty: only new names are encrypted",
        Some(Errno::NOKEY) => "the key is not there: it is added first (--key, extant key add)",
        Some(Errno::INVAL) => "a policy that this volume cannot have",
        _ => {
            let what = error.to_string();
            return Failure::at(at, Failure::caused_by(error, what));
        }
    };
    Failure::at(at, Failure::caused_by(error, what))
}
