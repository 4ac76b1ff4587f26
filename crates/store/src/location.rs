//! The address of an image in a store.

use std::fmt;
use std::str::FromStr;

use url::Url;

use crate::error::{Error, Result};

/// Stores, by the schemes of their addresses.
const SCHEMES: [&str; 4] = ["s3://", "gs://", "az://", "file://"];

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
        if !is_name(name) {
            return Err(Error::BadLocation {
                text: name.to_owned(),
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

/// Returns whether an image may have this name.
fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    !name.is_empty() && !name.starts_with('.') && name.chars().all(plain)
}

impl FromStr for Location {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = |why| Error::BadLocation {
            text: text.to_owned(),
            why,
        };
        if !Self::is_location(text.as_bytes()) {
            return Err(bad("it begins with s3://, gs://, az:// or file://"));
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
        if !is_name(name) {
            return Err(bad(NAMES));
        }
        let url = Url::parse(&format!("{root}/")).map_err(|_| bad("it is no URL"))?;
        let is_folder = url.scheme() == "file";
        if is_folder == url.host_str().is_some_and(|host| !host.is_empty()) {
            return Err(bad(
                "the bucket and the name of the image follow, or /FOLDER/NAME",
            ));
        }
        let user = !url.username().is_empty() && url.scheme() != "az";
        if user || url.password().is_some() || url.port().is_some() {
            return Err(bad(
                "credentials and endpoints are those of the environment",
            ));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(bad("there is nothing behind '?' or '#'"));
        }
        Ok(Self {
            root: url,
            name: name.to_owned(),
            version,
        })
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
}
