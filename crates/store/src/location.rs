//! The address of an image in a store.

use std::fmt;
use std::str::FromStr;

use url::Url;

use crate::error::{Error, Result};

/// Stores, by the schemes of their addresses.
const SCHEMES: [&str; 4] = ["s3://", "gs://", "az://", "file://"];

const SCHEME_MISSING: &str = "it begins with s3://, gs://, az:// or file://";

/// The address of an image: `s3://BUCKET/PREFIX/NAME`, with `@VERSION` for one that is not the
/// current one. Images with the same bucket and prefix share chunks. `gs://` and `az://` are the
/// stores of Google and Azure, `file:///FOLDER/NAME` is a folder of the host.
///
/// ```
/// use extant_store::Location;
///
/// let image: Location = "s3://images/debian/root@7".parse()?;
/// assert_eq!((image.name(), image.version()), ("root", Some(7)));
/// # Ok::<(), extant_store::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Location {
    root: Url,
    name: String,
    version: Option<u64>,
}

impl Location {
    /// Returns whether `text` begins as an address does.
    pub fn is_location(text: &[u8]) -> bool {
        Self::scheme_len(text).is_some()
    }

    /// The length of the scheme that `text` begins with.
    pub fn scheme_len(text: &[u8]) -> Option<usize> {
        let found = SCHEMES
            .iter()
            .find(|scheme| text.starts_with(scheme.as_bytes()));
        found.map(|scheme| scheme.len())
    }

    /// Returns whether an image may have this name.
    pub(crate) fn is_name(name: &str) -> bool {
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        !name.is_empty() && !name.starts_with('.') && name.chars().all(plain)
    }

    /// The part of the store that images share chunks in.
    pub(crate) fn root(&self) -> &Url {
        &self.root
    }

    /// The image's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The address of another image in the same part of the store.
    ///
    /// # Errors
    /// [`Error::BadLocation`]: the name has other characters than names have.
    pub(crate) fn beside(&self, name: &str) -> Result<Self> {
        if !Self::is_name(name) {
            return Err(Error::BadLocation {
                text: name.to_owned(),
                of: "an image in a store",
                why: NAMES,
            });
        }
        Ok(Self {
            name: name.to_owned(),
            version: None,
            ..self.clone()
        })
    }

    /// The address of a version of this image.
    #[must_use]
    pub fn at(&self, version: u64) -> Self {
        Self {
            version: Some(version),
            ..self.clone()
        }
    }

    /// The version that is asked for; `None` is the current one.
    pub fn version(&self) -> Option<u64> {
        self.version
    }
}

/// The rule of names.
const NAMES: &str = "a name has letters, digits, '.', '_' and '-'";

impl FromStr for Location {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = |why| Error::BadLocation {
            text: text.to_owned(),
            of: "an image in a store",
            why,
        };
        if !Self::is_location(text.as_bytes()) {
            return Err(bad(SCHEME_MISSING));
        }
        let (path, version) = match text.rsplit_once('@') {
            Some((path, number)) if !number.contains('/') => {
                let number = number.parse().ok().filter(|&number| number > 0);
                (
                    path,
                    Some(number.ok_or_else(|| bad("a version is a number from 1 on"))?),
                )
            }
            _ => (text, None),
        };
        let (root, name) = path.rsplit_once('/').unwrap_or_default();
        if !Self::is_name(name) {
            return Err(bad(NAMES));
        }
        let none = "the bucket and the name of the image follow, or /FOLDER/NAME";
        Ok(Self {
            root: read_root(root, none).map_err(bad)?,
            name: name.to_owned(),
            version,
        })
    }
}

/// Reads the part of an address in which images share chunks; an error says why it is none, `none`
/// if there is no bucket.
fn read_root(root: &str, none: &'static str) -> std::result::Result<Url, &'static str> {
    let url = Url::parse(&format!("{root}/")).map_err(|_| "it is no URL")?;
    let is_folder = url.scheme() == "file";
    if is_folder == url.host_str().is_some_and(|host| !host.is_empty()) {
        return Err(none);
    }
    let user = !url.username().is_empty() && url.scheme() != "az";
    if user || url.password().is_some() || url.port().is_some() {
        return Err("credentials and endpoints are those of the environment");
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("there is nothing behind '?' or '#'");
    }
    Ok(url)
}

/// The address of a store: that of its images without their names, `s3://BUCKET/PREFIX`.
///
/// ```
/// use extant_store::Prefix;
///
/// let store: Prefix = "s3://images/debian".parse()?;
/// assert_eq!(store.to_string(), "s3://images/debian/");
/// # Ok::<(), extant_store::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Prefix(Url);

impl Prefix {
    pub(crate) fn root(&self) -> &Url {
        &self.0
    }
}

impl FromStr for Prefix {
    type Err = Error;

    /// Reads an address, with or without a slash at its end.
    fn from_str(text: &str) -> Result<Self> {
        let bad = |why| Error::BadLocation {
            text: text.to_owned(),
            of: "a store",
            why,
        };
        if !Location::is_location(text.as_bytes()) {
            return Err(bad(SCHEME_MISSING));
        }
        let root = read_root(
            text.strip_suffix('/').unwrap_or(text),
            "the bucket follows, or /FOLDER",
        );
        root.map(Self).map_err(bad)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.root, self.name)?;
        self.version.map_or(Ok(()), |number| write!(f, "@{number}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_is_written() {
        for text in [
            "s3://bucket/name",
            "s3://bucket/a/b/name@12",
            "gs://bucket/name-1.img",
            "file:///srv/images/root@1",
        ] {
            let location: Location = text.parse().unwrap();
            assert_eq!(location.to_string(), text);
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "s3:/bucket/name",
            "s3://bucket",
            "s3://bucket/",
            "s3:///name",
            "s3://bucket/..",
            "s3://bucket/a b",
            "s3://bucket/name@0",
            "s3://bucket/name@x",
            "s3://bucket/name?x",
            "s3://key:secret@bucket/name",
            "s3://key@bucket/name",
            "s3://bucket:80/name",
            "s3://bucket/p?x/name",
            "file://host/folder/name",
            "/srv/images/root",
        ] {
            assert!(text.parse::<Location>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_store_has_the_address_of_its_images() {
        for (text, store) in [
            ("s3://bucket", "s3://bucket/"),
            ("s3://bucket/a/b/", "s3://bucket/a/b/"),
            ("file:///srv/images", "file:///srv/images/"),
        ] {
            assert_eq!(text.parse::<Prefix>().unwrap().to_string(), store);
        }
        for text in [
            "s3://",
            "s3:///a",
            "s3://key@bucket",
            "s3://bucket?x",
            "file://host/folder",
            "/srv/images",
        ] {
            assert!(text.parse::<Prefix>().is_err(), "{text}");
        }
    }
}
