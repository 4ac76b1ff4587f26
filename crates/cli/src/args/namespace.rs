//! Commands that change names and attributes: mv, rm, mkdir, ln, touch, chmod, chown, setfattr.

use std::ffi::OsString;

use clap::Args;
use extant::Timestamp;

use crate::operand::ImagePath;
use crate::owner::{self, Owner};

/// Rename and move within an image
///
/// All operands are in the same image. With several sources the destination is a directory.
#[derive(Args, Debug)]
#[command(override_usage = "extant mv [OPTIONS] <IMAGE:/SOURCE>... <IMAGE:/DESTINATION>")]
pub(crate) struct Mv {
    /// Skip what exists
    #[arg(short, long)]
    pub(crate) no_clobber: bool,
    /// Files and trees to move; then the new name, or the directory that they go to
    #[arg(required = true, num_args = 1.., value_names = ["IMAGE:/SOURCE", "IMAGE:/DESTINATION"])]
    pub(crate) operands: Vec<ImagePath>,
}

/// Remove files and trees
#[derive(Args, Debug)]
pub(crate) struct Rm {
    /// Remove directories and what is in them
    #[arg(short, long, visible_short_alias = 'R')]
    pub(crate) recursive: bool,
    /// Remove empty directories
    #[arg(short, long)]
    pub(crate) dir: bool,
    /// Ignore what does not exist
    #[arg(short, long)]
    pub(crate) force: bool,
    /// The names to remove
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    pub(crate) paths: Vec<ImagePath>,
}

/// Make directories
#[derive(Args, Debug)]
pub(crate) struct Mkdir {
    /// Make missing parents too, and accept directories that exist
    #[arg(short, long)]
    pub(crate) parents: bool,
    /// Permissions, as for chmod
    #[arg(short, long)]
    pub(crate) mode: Option<String>,
    /// The owner of what is made: USER, USER:GROUP or :GROUP, as for chown
    #[arg(long, value_name = "OWNER", value_parser = owner::parse)]
    pub(crate) owner: Option<Owner>,
    /// The new directory
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    pub(crate) paths: Vec<ImagePath>,
}

/// Make hard and symbolic links
#[derive(Args, Debug)]
pub(crate) struct Ln {
    /// Make a symbolic link; TARGET is then what the link says
    #[arg(short, long)]
    pub(crate) symbolic: bool,
    /// Replace what exists
    #[arg(short, long)]
    pub(crate) force: bool,
    /// The owner of the symbolic link: USER, USER:GROUP or :GROUP, as for chown
    #[arg(long, value_name = "OWNER", value_parser = owner::parse, requires = "symbolic")]
    pub(crate) owner: Option<Owner>,
    /// The target of the link
    pub(crate) target: OsString,
    /// The link
    #[arg(value_name = "IMAGE:/LINK")]
    pub(crate) link: ImagePath,
}

/// Change permissions
#[derive(Args, Debug)]
pub(crate) struct Chmod {
    /// Change what is in directories too
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Octal (644), or words as u=rwx,go-w,+X
    #[arg(allow_hyphen_values = true)]
    pub(crate) mode: String,
    /// The files to change
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    pub(crate) paths: Vec<ImagePath>,
}

/// Change owner and group
#[derive(Args, Debug)]
pub(crate) struct Chown {
    /// Change what is in directories too
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Change symbolic links, not what they lead to
    #[arg(short = 'n', long)]
    pub(crate) no_dereference: bool,
    /// USER, USER:GROUP or :GROUP; numbers, or names that this machine knows
    pub(crate) owner: String,
    /// The files to change
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    pub(crate) paths: Vec<ImagePath>,
}

/// Set times, and make files that do not exist
///
/// Without -a and -m, both times are set.
#[derive(Args, Debug)]
pub(crate) struct Touch {
    /// Make no files
    #[arg(short = 'c', long)]
    pub(crate) no_create: bool,
    /// Set the time of access
    #[arg(short)]
    pub(crate) access: bool,
    /// Set the time of modification
    #[arg(short)]
    pub(crate) modification: bool,
    /// The time, instead of now: @SECONDS since 1970, also with a fraction
    #[arg(short, long, value_name = "@SECONDS", value_parser = parse_time)]
    pub(crate) date: Option<Timestamp>,
    /// The owner of what is made: USER, USER:GROUP or :GROUP, as for chown
    #[arg(long, value_name = "OWNER", value_parser = owner::parse)]
    pub(crate) owner: Option<Owner>,
    /// The file
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    pub(crate) paths: Vec<ImagePath>,
}

/// A time as date(1) takes it: `@-1.5` is a second and a half before 1970.
fn parse_time(text: &str) -> Result<Timestamp, &'static str> {
    const WRONG: &str = "a time is @SECONDS since 1970";
    let text = text.strip_prefix('@').ok_or(WRONG)?;
    let (secs, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_fraction = !fraction.is_empty() && fraction.bytes().all(|b| b.is_ascii_digit());
    if !is_fraction || fraction.len() > 9 {
        return Err(WRONG);
    }
    let nanos: u32 = format!("{fraction:0<9}").parse().map_err(|_| WRONG)?;
    let whole: i64 = secs.parse().map_err(|_| WRONG)?;
    match nanos {
        // The nanoseconds count from the second before.
        1.. if secs.starts_with('-') => Ok(Timestamp {
            secs: whole.checked_sub(1).ok_or(WRONG)?,
            nanos: 1_000_000_000 - nanos,
        }),
        _ => Ok(Timestamp { secs: whole, nanos }),
    }
}

/// Set and remove extended attributes
///
/// Of symbolic links themselves. extant stat shows them.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub(crate) struct Setfattr {
    /// The attribute to set, such as user.note
    #[arg(short, long, group = "what")]
    pub(crate) name: Option<String>,
    /// Its value: text, or bytes as hexadecimal digits behind 0x
    #[arg(short, long, default_value = "", requires = "name", value_parser = XattrValue::parse)]
    #[arg(hide_default_value = true)]
    pub(crate) value: XattrValue,
    /// The attribute to remove
    #[arg(short = 'x', long, value_name = "NAME", group = "what")]
    pub(crate) remove: Option<String>,
    /// The file
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    pub(crate) paths: Vec<ImagePath>,
}

/// The value of an attribute.
#[derive(Clone, Debug)]
pub(crate) struct XattrValue(pub(crate) Vec<u8>);

impl XattrValue {
    fn parse(text: &str) -> Result<XattrValue, &'static str> {
        let Some(digits) = text.strip_prefix("0x") else {
            return Ok(XattrValue(text.as_bytes().to_vec()));
        };
        let pairs = digits.as_bytes().chunks(2);
        let byte = |pair: &[u8]| {
            let pair = str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?;
            let is_hex = pair.bytes().all(|b| b.is_ascii_hexdigit());
            u8::from_str_radix(pair, 16).ok().filter(|_| is_hex)
        };
        let bytes: Option<Vec<u8>> = pairs.map(byte).collect();
        bytes
            .map(XattrValue)
            .ok_or("behind 0x stand pairs of hexadecimal digits")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_since_1970() {
        let time = |text| parse_time(text).map(|t| (t.secs, t.nanos));
        assert_eq!(time("@0"), Ok((0, 0)));
        assert_eq!(time("@1500000000.25"), Ok((1_500_000_000, 250_000_000)));
        assert_eq!(time("@-1.5"), Ok((-2, 500_000_000)));
        for text in ["", "0", "@", "@x", "@1.", "@1.+5", "@1.1234567890"] {
            assert!(time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn values_are_text_or_digits() {
        let value = |text| XattrValue::parse(text).ok().map(|value| value.0);
        assert_eq!(value("0x00ff").as_deref(), Some(&[0, 255][..]));
        assert_eq!(value("0").as_deref(), Some(&b"0"[..]));
        assert_eq!(
            (value("0x0"), value("0x+1"), value("0x\u{e9}")),
            (None, None, None)
        );
    }
}
