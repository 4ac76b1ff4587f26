//! Numbers of bytes as util-linux takes them: `4096`, `64K` or `64KiB` (1024 each), `64KB` (1000
//! each).

/// Letters of the units, from 1024 or 1000 on.
const UNITS: [char; 6] = ['k', 'm', 'g', 't', 'p', 'e'];

/// Reads a number of bytes; for the grammar.
///
/// # Errors
/// Why it is none.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| "not a number of bytes")?;
    let mut rest = unit.chars();
    let Some(letter) = rest.next() else {
        return Ok(number);
    };
    let step: u64 = match rest.as_str() {
        "" | "iB" => 1024,
        "B" => 1000,
        _ => return Err("its unit is not known: K, KiB, KB, M ... E".into()),
    };
    let power = UNITS
        .iter()
        .position(|unit| *unit == letter.to_ascii_lowercase());
    let power = power.ok_or("its unit is not known: K, KiB, KB, M ... E")?;
    let power = u32::try_from(power + 1).map_err(|error| error.to_string())?;
    let scale = step.checked_pow(power);
    scale
        .and_then(|scale| number.checked_mul(scale))
        .ok_or_else(|| "too large".into())
}

/// A number of bytes for people, as `ls -h` writes it: at most three digits, rounded up.
pub(crate) fn human(bytes: u64) -> String {
    // In tenths of a unit, rounded up from the bytes themselves.
    let tenths = |shift: u32| (u128::from(bytes) * 10).div_ceil(1 << shift);
    let letters = ["K", "M", "G", "T", "P", "E"];
    if bytes < 1024 {
        return bytes.to_string();
    }
    let mut shift = 10;
    for letter in letters {
        let scaled = tenths(shift);
        if scaled < 100 {
            return format!("{}.{}{letter}", scaled / 10, scaled % 10);
        }
        if scaled.div_ceil(10) < 1024 || letter == "E" {
            return format!("{}{letter}", scaled.div_ceil(10));
        }
        shift += 10;
    }
    bytes.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_for_people_are_those_of_ls() {
        for (bytes, text) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (10 << 10, "10K"),
            ((10 << 10) + 1, "11K"),
            ((1 << 20) - 1, "1.0M"),
            (1 << 20, "1.0M"),
            (300_000, "293K"),
            (u64::MAX, "16E"),
        ] {
            assert_eq!(human(bytes), text, "{bytes}");
        }
    }

    #[test]
    fn sizes_are_util_linuxs() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("64k", 65_536),
            ("64K", 65_536),
            ("64KiB", 65_536),
            ("64KB", 64_000),
            ("3M", 3 << 20),
            ("2GB", 2_000_000_000),
            ("15E", 15 << 60),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        for text in [
            "",
            "k",
            "-1",
            "1.5M",
            "16E",
            "1KiBs",
            "1Q",
            "1 K",
            "99999999999999999999",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
