//! `IMAGE:/path`, and operands that may be that or a path of the host.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use clap::builder::{TypedValueParser, ValueParserFactory};
use extant_nbd::Address;
use extant_store::Location;

/// A path inside of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ImagePath {
    /// The image file, block device or address.
    pub(crate) image: PathBuf,
    /// The path inside; begins with a slash.
    pub(crate) path: PathBuf,
}

/// A path of the host or inside of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operand {
    /// Inside of an image.
    Image(ImagePath),
    /// Of the host.
    Host(PathBuf),
}

impl ImagePath {
    /// Splits at the first `:/`; `None` if there is none, or nothing in front of it. In the address
    /// of an export that is the first one after the scheme; an address alone means its root.
    pub(crate) fn parse(operand: &OsStr) -> Option<ImagePath> {
        let bytes = operand.as_bytes();
        let scheme = Address::scheme_len(bytes).or_else(|| Location::scheme_len(bytes));
        let start = scheme.unwrap_or(0);
        let found = bytes.get(start..)?.windows(2).position(|two| two == b":/");
        let (image, path) = match found.map(|at| start + at).filter(|&at| at > 0) {
            Some(at) => (bytes.get(..at)?, bytes.get(at + 1..)?),
            None if scheme.is_some() => (bytes, b"/".as_slice()),
            None => return None,
        };
        let own = |bytes: &[u8]| PathBuf::from(OsString::from_vec(bytes.to_vec()));
        Some(ImagePath {
            image: own(image),
            path: own(path),
        })
    }

    /// The root of the file system in `image`.
    pub(crate) fn root(image: PathBuf) -> ImagePath {
        ImagePath {
            image,
            path: PathBuf::from("/"),
        }
    }

    /// `IMAGE:/path`, or `IMAGE` for its root.
    pub(crate) fn or_root(operand: OsString) -> ImagePath {
        ImagePath::parse(&operand).unwrap_or_else(|| ImagePath::root(operand.into()))
    }

    /// The same image, another path.
    pub(crate) fn with_path(&self, path: impl Into<PathBuf>) -> ImagePath {
        ImagePath {
            image: self.image.clone(),
            path: path.into(),
        }
    }

    /// Returns whether the path was written so that it means what is in a directory: `/`, `dir/.`
    pub(crate) fn means_content(&self) -> bool {
        means_content(&self.path)
    }
}

impl Operand {
    /// The path inside of an image, if it is one.
    pub(crate) fn image(&self) -> Option<&ImagePath> {
        match self {
            Operand::Image(at) => Some(at),
            Operand::Host(_) => None,
        }
    }

    /// Returns whether this is `path` of the host, as it was written.
    pub(crate) fn is_host(&self, path: &str) -> bool {
        matches!(self, Operand::Host(host) if host.as_os_str() == path)
    }

    /// Returns whether it was written as a directory: with a slash at its end.
    pub(crate) fn ends_in_slash(&self) -> bool {
        let path = match self {
            Operand::Image(at) => &at.path,
            Operand::Host(path) => path,
        };
        path.as_os_str().as_bytes().ends_with(b"/")
    }

    /// Returns whether the path was written so that it means what is in a directory.
    pub(crate) fn means_content(&self) -> bool {
        match self {
            Operand::Image(at) => at.means_content(),
            Operand::Host(path) => means_content(path),
        }
    }
}

/// `/`, `.`, `..`, and paths that end in one of the latter.
fn means_content(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes
        .iter()
        .rposition(|&b| b != b'/')
        .map_or(0, |last| last + 1);
    let trimmed = &bytes[..end];
    matches!(
        trimmed.rsplit(|&b| b == b'/').next(),
        None | Some(b"" | b"." | b"..")
    )
}

impl fmt::Display for ImagePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.image.display(), self.path.display())
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operand::Image(at) => at.fmt(f),
            Operand::Host(path) => path.display().fmt(f),
        }
    }
}

impl From<OsString> for Operand {
    fn from(operand: OsString) -> Operand {
        match ImagePath::parse(&operand) {
            Some(at) => Operand::Image(at),
            None => Operand::Host(operand.into()),
        }
    }
}

impl ValueParserFactory for Operand {
    type Parser =
        clap::builder::MapValueParser<clap::builder::OsStringValueParser, fn(OsString) -> Operand>;

    fn value_parser() -> Self::Parser {
        clap::builder::OsStringValueParser::new().map(Operand::from)
    }
}

impl ValueParserFactory for ImagePath {
    type Parser = clap::builder::TryMapValueParser<
        clap::builder::OsStringValueParser,
        fn(OsString) -> Result<ImagePath, &'static str>,
    >;

    fn value_parser() -> Self::Parser {
        clap::builder::OsStringValueParser::new().try_map(|operand| {
            ImagePath::parse(&operand).ok_or("a path inside of an image is written IMAGE:/path")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(text: &str) -> Option<(String, String)> {
        let at = ImagePath::parse(OsStr::new(text))?;
        Some((
            at.image.display().to_string(),
            at.path.display().to_string(),
        ))
    }

    #[test]
    fn the_first_colon_before_a_slash_divides() {
        assert_eq!(
            image("disk.img:/a/b"),
            Some(("disk.img".into(), "/a/b".into()))
        );
        assert_eq!(
            image("/tmp/x:y.img:/"),
            Some(("/tmp/x:y.img".into(), "/".into()))
        );
        assert_eq!(image("d:/a:/b"), Some(("d".into(), "/a:/b".into())));
        assert_eq!(image("disk.img"), None);
        assert_eq!(image("a:b"), None);
        assert_eq!(image(":/x"), None);
        let root = ImagePath::or_root("a:b".into());
        assert_eq!((root.image, root.path), ("a:b".into(), "/".into()));
        assert_eq!(ImagePath::or_root("a:/b".into()).path, Path::new("/b"));
    }

    #[test]
    fn an_address_keeps_its_scheme_and_port() {
        for (text, address, path) in [
            ("nbd://h/e:/a", "nbd://h/e", "/a"),
            ("s3://b/p/n@3:/a", "s3://b/p/n@3", "/a"),
            ("file:///f/n", "file:///f/n", "/"),
            ("nbd://h:10809/e", "nbd://h:10809/e", "/"),
            ("nbds://[::1]:7/e:/a:/b", "nbds://[::1]:7/e", "/a:/b"),
            (
                "nbd+unix:///?socket=/run/s:/etc",
                "nbd+unix:///?socket=/run/s",
                "/etc",
            ),
        ] {
            assert_eq!(image(text), Some((address.into(), path.into())), "{text}");
        }
    }

    #[test]
    fn contents_are_meant_by_root_and_dots() {
        for path in ["/", "//", ".", "..", "a/.", "a/..", "a/./", "./"] {
            assert!(means_content(Path::new(path)), "{path}");
        }
        for path in ["a", "/a", "a/", "/a/.b", "a/b.", "..."] {
            assert!(!means_content(Path::new(path)), "{path}");
        }
    }
}
