//! Container images as sources: OCI layouts and what `docker save` writes.
//!
//! # Errors
//! An image is named by its layers' locations; none leads out of the layout or the archive, and no
//! link of a layout is followed. The digests in those names are not compared with the contents.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use extant_archive::{Member, Reader, Window, kind};
use rustix::fs::{Mode, OFlags, open, openat};
use serde_json::Value;

use crate::error::{At, Error, Result};

/// The longest description of an image that is read.
const MAX_JSON: u64 = 16 << 20;
/// The most layers of an image.
const MAX_LAYERS: usize = 4096;
/// The most files of an archive that holds an image.
const MAX_FILES: usize = 1 << 16;
/// Indexes may lead to indexes, so deep.
const MAX_DEPTH: usize = 4;
/// The most images of an index or a list.
const MAX_IMAGES: usize = 4096;
/// The most bytes of descriptions that are read for the platforms of images.
const MAX_PLATFORM_JSON: u64 = 16 * MAX_JSON;
/// The most images that a message lists.
const MAX_LISTED: usize = 20;
/// The annotations that hold image names.
const NAMES: [&str; 2] = [
    "org.opencontainers.image.ref.name",
    "io.containerd.image.name",
];

/// The list of images in what `docker save` writes.
const MANIFEST: &[u8] = b"manifest.json";
/// Files that only what holds a container image has.
const MARKS: [&[u8]; 3] = [MANIFEST, b"oci-layout", b"index.json"];

/// A part of a file.
pub(crate) type Stored = (File, Range<u64>);

/// A container image's files: in a folder, or in an archive.
pub(crate) enum Container {
    Folder(PathBuf),
    Archive {
        name: String,
        file: File,
        members: HashMap<Vec<u8>, Range<u64>>,
        links: HashMap<Vec<u8>, Vec<u8>>,
    },
}

/// Which image is wanted.
#[derive(Clone, Copy, Default)]
pub(crate) struct Wanted<'a> {
    pub(crate) name: Option<&'a str>,
    /// `OS/ARCHITECTURE` or `OS/ARCHITECTURE/VARIANT`.
    pub(crate) platform: Option<&'a str>,
}

impl Container {
    /// The image in a folder, if it holds one.
    pub(crate) fn in_folder(path: &Path) -> Option<Self> {
        let folder = Self::Folder(path.to_path_buf());
        let has = |name: &[u8]| folder.open(name).is_ok();
        let is_layout = has(b"oci-layout") && has(b"index.json");
        (is_layout || folder.has_manifest()).then_some(folder)
    }

    /// The image in an archive, if it holds one: wherever in it that says so.
    ///
    /// # Errors
    /// Those of the host; an archive that is damaged.
    pub(crate) fn in_archive(name: &str, file: &File, len: u64) -> Result<Option<Self>> {
        let mut marks = Vec::new();
        each_member(name, file, len, |path, member, at| {
            if MARKS.contains(&path.as_slice()) && member.kind == kind::REGULAR {
                // Nothing is read behind the archive's end, which the next header is within.
                marks.push((path, at..at.saturating_add(member.size)));
            }
            Ok(())
        })?;
        let archive = |members: HashMap<_, _>, links| {
            let file = file.try_clone().at(Path::new(name))?;
            Ok(Self::Archive {
                name: name.to_owned(),
                file,
                members,
                links,
            })
        };
        let marked = archive(marks.into_iter().collect(), HashMap::new())?;
        let has = |path: &[u8]| marked.open(path).is_ok();
        let is_layout = has(b"oci-layout") && has(b"index.json");
        if !is_layout && !marked.has_manifest() {
            return Ok(None);
        }
        let (mut members, mut links) = (HashMap::new(), HashMap::new());
        each_member(name, file, len, |path, member, at| {
            if members.len() + links.len() > MAX_FILES {
                let what = format!("a container image of more than {MAX_FILES} files");
                return Err(Error::at(name, what));
            }
            match member.kind {
                kind::REGULAR if member.pieces.is_none() => {
                    members.insert(path, at..at.saturating_add(member.size));
                }
                kind::LINK => {
                    links.insert(path, plain(&member.link));
                }
                kind::SYMLINK => {
                    let target = beside(&path, &member.link);
                    links.insert(path, target);
                }
                _ => {}
            }
            Ok(())
        })?;
        archive(members, links).map(Some)
    }

    /// Returns whether `manifest.json` is a list of images, as `docker save` writes it. Other
    /// programs store other things under this name.
    fn has_manifest(&self) -> bool {
        let value = self.json(MANIFEST).ok();
        let all = value.as_ref().and_then(Value::as_array);
        let has_layers = |one: &Value| one.get("Layers").is_some_and(Value::is_array);
        all.is_some_and(|all| !all.is_empty() && all.iter().all(has_layers))
    }

    fn name(&self) -> String {
        match self {
            Self::Folder(path) => path.display().to_string(),
            Self::Archive { name, .. } => name.clone(),
        }
    }

    /// The layers of the image that is wanted, the lowest first.
    ///
    /// # Errors
    /// None or several fit; descriptions that are damaged; layers that are not there.
    pub(crate) fn layers(&self, wanted: Wanted<'_>) -> Result<Vec<(String, Stored)>> {
        let paths = if self.open(b"index.json").is_ok() {
            self.oci(wanted)?
        } else {
            self.docker(wanted)?
        };
        if paths.len() > MAX_LAYERS {
            return Err(self.bad(format!("an image of {} layers", paths.len())));
        }
        paths
            .into_iter()
            .map(|path| {
                let shown = format!("{}: {}", self.name(), String::from_utf8_lossy(&path));
                Ok((shown, self.open(&path)?))
            })
            .collect()
    }

    fn bad(&self, what: impl std::fmt::Display) -> Error {
        Error::at(self.name(), what)
    }

    fn open(&self, path: &[u8]) -> Result<Stored> {
        match self {
            Self::Folder(root) => {
                let shown = root.join(OsStr::from_bytes(path));
                let file = open_below(root, path).at(&shown)?;
                let metadata = file.metadata().at(&shown)?;
                if !metadata.is_file() {
                    return Err(Error::at(shown.display(), "not a file"));
                }
                Ok((file, 0..metadata.len()))
            }
            Self::Archive {
                name,
                file,
                members,
                links,
            } => {
                let mut path = path;
                for _ in 0..MAX_DEPTH {
                    match links.get(path) {
                        Some(target) => path = target,
                        None => break,
                    }
                }
                let range = members.get(path).cloned().ok_or_else(|| {
                    self.bad(format!("it has no {}", String::from_utf8_lossy(path)))
                })?;
                Ok((file.try_clone().at(Path::new(name))?, range))
            }
        }
    }

    fn json(&self, path: &[u8]) -> Result<Value> {
        let shown = String::from_utf8_lossy(path).into_owned();
        let (file, range) = self.open(path)?;
        if range.end - range.start > MAX_JSON {
            return Err(self.bad(format!("{shown} is too long")));
        }
        let mut bytes = Vec::new();
        let read = Window::new(&file, range).read_to_end(&mut bytes);
        read.at(Path::new(&shown))?;
        serde_json::from_slice(&bytes).map_err(|error| self.bad(format!("{shown}: {error}")))
    }

    /// The layers by an OCI index.
    fn oci(&self, wanted: Wanted<'_>) -> Result<Vec<Vec<u8>>> {
        let mut path = b"index.json".to_vec();
        let mut name = wanted.name;
        for _ in 0..MAX_DEPTH {
            let value = self.json(&path)?;
            if let Some(layers) = value.get("layers") {
                let layers = layers.as_array().map(Vec::as_slice).unwrap_or_default();
                return layers.iter().map(|layer| self.blob(layer)).collect();
            }
            let all = value.get("manifests").and_then(Value::as_array);
            let all = all.map(Vec::as_slice).unwrap_or_default();
            let chosen = self.choose(all, name.take(), wanted.platform)?;
            path = self.blob(chosen)?;
        }
        Err(self.bad("its indexes lead to indexes without an end"))
    }

    /// The one image of an index that is wanted.
    fn choose<'a>(
        &self,
        all: &'a [Value],
        name: Option<&str>,
        platform: Option<&str>,
    ) -> Result<&'a Value> {
        let note = |one: &&Value| {
            // What docker stores about an image's making, beside the image.
            let kind = one.pointer("/annotations/vnd.docker.reference.type");
            kind.is_none()
        };
        let named = |one: &Value| name.is_none_or(|name| names(one).any(|own| own == name));
        self.check_count(all)?;
        let mut platforms = Platforms::of(self);
        let mut fits = |one: &Value| -> Result<bool> {
            match platform {
                Some(wanted) => {
                    let own = platforms.described(one)?;
                    Ok(own.is_none_or(|own| is_platform(&own, wanted)))
                }
                None => Ok(true),
            }
        };
        let images: Vec<&Value> = all.iter().filter(note).collect();
        let mut fitting: Vec<&Value> = Vec::new();
        for &one in &images {
            if named(one) && fits(one)? {
                fitting.push(one);
            }
        }
        match fitting.as_slice() {
            [one] => Ok(one),
            several => {
                let listed = images.iter().take(MAX_LISTED);
                let shown = listed.map(|one| Ok(described(one, platforms.described(one)?)));
                let shown = shown.collect::<Result<Vec<String>>>()?;
                let many = if several.is_empty() {
                    "none"
                } else {
                    "several"
                };
                Err(self.bad(format!(
                    "{many} of its images fit: choose one by name or platform: {}",
                    list(&shown, images.len())
                )))
            }
        }
    }

    fn check_count(&self, images: &[Value]) -> Result<()> {
        match images.len() > MAX_IMAGES {
            true => Err(self.bad(format!("a list of {} images", images.len()))),
            false => Ok(()),
        }
    }

    /// The location of what a descriptor is about.
    fn blob(&self, descriptor: &Value) -> Result<Vec<u8>> {
        let digest = descriptor.get("digest").and_then(Value::as_str);
        let digest = digest.unwrap_or_default();
        let plain = |text: &str| {
            !text.is_empty()
                && text
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        };
        match digest.split_once(':') {
            Some((kind, hex)) if plain(kind) && plain(hex) => {
                Ok(format!("blobs/{kind}/{hex}").into_bytes())
            }
            _ => Err(self.bad(format!("{digest:?} is no digest"))),
        }
    }

    /// The layers by what `docker save` writes.
    fn docker(&self, wanted: Wanted<'_>) -> Result<Vec<Vec<u8>>> {
        let value = self.json(MANIFEST)?;
        let all = value.as_array().map(Vec::as_slice).unwrap_or_default();
        let tags = |one: &Value| -> Vec<String> {
            let tags = one.get("RepoTags").and_then(Value::as_array);
            let tags = tags.map(Vec::as_slice).unwrap_or_default();
            tags.iter()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect()
        };
        let named = |one: &Value| {
            let own = tags(one);
            wanted
                .name
                .is_none_or(|name| own.iter().any(|tag| tag == name))
        };
        self.check_count(all)?;
        let mut platforms = Platforms::of(self);
        let mut fits = |one: &Value| -> Result<bool> {
            match wanted.platform {
                Some(wanted) => {
                    let own = platforms.configured(one)?;
                    Ok(own.is_some_and(|own| is_platform(&own, wanted)))
                }
                None => Ok(true),
            }
        };
        let mut fitting: Vec<&Value> = Vec::new();
        for one in all {
            if named(one) && fits(one)? {
                fitting.push(one);
            }
        }
        let [one] = fitting.as_slice() else {
            let mut shown = Vec::new();
            for one in all.iter().take(MAX_LISTED) {
                shown.extend(tags(one).into_iter().take(MAX_LISTED));
                shown.extend(platforms.configured(one)?);
            }
            return Err(self.bad(format!(
                "{} of its images fit: choose one by name or platform: {}",
                fitting.len(),
                list(&shown, shown.len() + all.len().saturating_sub(MAX_LISTED))
            )));
        };
        let layers = one.get("Layers").and_then(Value::as_array);
        let layers = layers.ok_or_else(|| self.bad("manifest.json without layers"))?;
        let paths = layers.iter().map(|layer| layer.as_str());
        paths
            .map(|path| match path {
                Some(path) => Ok(plain(path.as_bytes())),
                None => Err(self.bad("manifest.json with a layer that has no name")),
            })
            .collect()
    }
}

/// The platforms of images by their descriptions, each of which is read once.
struct Platforms<'a> {
    container: &'a Container,
    known: HashMap<Vec<u8>, Option<String>>,
    /// Bytes that may still be read.
    left: u64,
}

impl<'a> Platforms<'a> {
    fn of(container: &'a Container) -> Self {
        Self {
            container,
            known: HashMap::new(),
            left: MAX_PLATFORM_JSON,
        }
    }

    /// The platform of what a descriptor is about, by itself or by the description of its image.
    /// That of an index is `None`: its images have theirs.
    ///
    /// # Errors
    /// The descriptions are too long, all together.
    fn described(&mut self, descriptor: &Value) -> Result<Option<String>> {
        if let Some(said) = descriptor.get("platform").and_then(platform_of) {
            return Ok(Some(said));
        }
        let Ok(path) = self.container.blob(descriptor) else {
            return Ok(None);
        };
        if let Some(known) = self.known.get(&path) {
            return Ok(known.clone());
        }
        let platform = match self.json(&path)? {
            Some(image) if image.get("config").is_none() && image.get("manifests").is_some() => {
                None
            }
            Some(image) => {
                let config = image
                    .get("config")
                    .map(|config| self.container.blob(config));
                let config = match config {
                    Some(Ok(path)) => self.json(&path)?,
                    _ => None,
                };
                Some(config.as_ref().and_then(platform_of).unwrap_or_default())
            }
            None => None,
        };
        self.known.insert(path, platform.clone());
        Ok(platform)
    }

    /// The platform of an image in the list of `docker save`.
    ///
    /// # Errors
    /// The descriptions are too long, all together.
    fn configured(&mut self, image: &Value) -> Result<Option<String>> {
        let Some(config) = image.get("Config").and_then(Value::as_str) else {
            return Ok(None);
        };
        let path = plain(config.as_bytes());
        if let Some(known) = self.known.get(&path) {
            return Ok(known.clone());
        }
        let platform = self.json(&path)?.as_ref().and_then(platform_of);
        self.known.insert(path, platform.clone());
        Ok(platform)
    }

    /// A description, if it is there and can be read.
    fn json(&mut self, path: &[u8]) -> Result<Option<Value>> {
        let Ok((_, range)) = self.container.open(path) else {
            return Ok(None);
        };
        let rest = self
            .left
            .checked_sub((range.end - range.start).min(MAX_JSON));
        self.left = rest.ok_or_else(|| {
            let what = "the descriptions of its images are too long, all together";
            self.container.bad(what)
        })?;
        Ok(self.container.json(path).ok())
    }
}

/// Words for a message about `all` images, of which it shows the first.
fn list(shown: &[String], all: usize) -> String {
    let words = shown.join(", ");
    match all.saturating_sub(shown.len()) {
        0 => words,
        more => format!("{words} and {more} more"),
    }
}

/// Calls `each` for the members of an archive: with the path, and where the content is.
///
/// # Errors
/// Those of the host; an archive that is damaged.
fn each_member(
    name: &str,
    file: &File,
    len: u64,
    mut each: impl FnMut(Vec<u8>, &Member, u64) -> Result<()>,
) -> Result<()> {
    let mut archive = Reader::new(Window::new(file, 0..len));
    let damaged = |error| Error::at(name, format!("not an archive that can be read: {error}"));
    while let Some(member) = archive.next_member().map_err(damaged)? {
        let at = archive.input().position();
        each(plain(&member.name), &member, at)?;
    }
    Ok(())
}

/// Opens a file below a folder. No link on its way is followed, and no pipe is waited for.
fn open_below(root: &Path, path: &[u8]) -> io::Result<File> {
    let open_dir = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut dir = open(root, open_dir, Mode::empty())?;
    let mut names: Vec<&[u8]> = path.split(|&byte| byte == b'/').collect();
    let last = names.pop().unwrap_or_default();
    if path.split(|&byte| byte == b'/').any(|name| name == b"..") {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it leads out"));
    }
    for name in names {
        dir = openat(&dir, name, open_dir | OFlags::NOFOLLOW, Mode::empty())?;
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(openat(&dir, last, flags, Mode::empty())?.into())
}

fn names(descriptor: &Value) -> impl Iterator<Item = &str> {
    let annotations = descriptor.get("annotations");
    NAMES
        .into_iter()
        .filter_map(move |key| annotations?.get(key)?.as_str())
}

/// The platform that a descriptor or the description of an image names.
fn platform_of(value: &Value) -> Option<String> {
    let part = |key| value.get(key).and_then(Value::as_str);
    let mut text = format!("{}/{}", part("os")?, part("architecture")?);
    if let Some(variant) = part("variant") {
        text = format!("{text}/{variant}");
    }
    Some(text)
}

/// Returns whether a platform is the one that is wanted, or a variant of it.
fn is_platform(own: &str, wanted: &str) -> bool {
    own == wanted || own.starts_with(&format!("{wanted}/"))
}

fn described(descriptor: &Value, platform: Option<String>) -> String {
    let mut words: Vec<String> = names(descriptor).map(str::to_owned).collect();
    words.extend(platform.filter(|platform| !platform.is_empty()));
    words.join(" ")
}

/// A path without what means nothing.
fn plain(path: &[u8]) -> Vec<u8> {
    let parts = path.split(|&byte| byte == b'/');
    let parts: Vec<&[u8]> = parts.filter(|part| !matches!(*part, b"" | b".")).collect();
    parts.join(&b'/')
}

/// The path that a link at `path` leads to. Names above the archive lead to nothing that is there.
fn beside(path: &[u8], link: &[u8]) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = path.split(|&byte| byte == b'/').collect();
    parts.pop();
    for part in link.split(|&byte| byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join(&b'/')
}
