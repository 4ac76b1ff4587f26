//! Just enough JSON to write results.

use std::fmt;

/// A JSON value.
#[derive(Clone, Debug)]
pub enum Value {
    /// A string.
    Text(String),
    /// A number; what is not finite is written as null.
    Number(f64),
    /// A list.
    List(Vec<Value>),
    /// Names and values, in order.
    Object(Vec<(String, Value)>),
}

impl Value {
    /// An object of pairs.
    pub fn object<K: Into<String>>(pairs: impl IntoIterator<Item = (K, Value)>) -> Value {
        Value::Object(pairs.into_iter().map(|(k, v)| (k.into(), v)).collect())
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Text(s) => text(f, s),
            Value::Number(n) if n.is_finite() => write!(f, "{n}"),
            Value::Number(_) => f.write_str("null"),
            Value::List(all) => {
                f.write_str("[")?;
                for (i, v) in all.iter().enumerate() {
                    write!(f, "{}{v}", if i > 0 { "," } else { "" })?;
                }
                f.write_str("]")
            }
            Value::Object(all) => {
                f.write_str("{")?;
                for (i, (k, v)) in all.iter().enumerate() {
                    f.write_str(if i > 0 { "," } else { "" })?;
                    text(f, k)?;
                    write!(f, ":{v}")?;
                }
                f.write_str("}")
            }
        }
    }
}

fn text(f: &mut fmt::Formatter<'_>, s: &str) -> fmt::Result {
    f.write_str("\"")?;
    for c in s.chars() {
        match c {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            c if u32::from(c) < 0x20 => write!(f, "\\u{:04x}", u32::from(c))?,
            c => write!(f, "{c}")?,
        }
    }
    f.write_str("\"")
}

#[cfg(test)]
mod tests {
    use super::Value;

    #[test]
    fn is_written_as_json() {
        let v = Value::object([
            ("a", Value::Text("q\"\\\n\u{1}".into())),
            (
                "b",
                Value::List(vec![Value::Number(1.5), Value::Number(f64::NAN)]),
            ),
        ]);
        assert_eq!(v.to_string(), r#"{"a":"q\"\\\n\u0001","b":[1.5,null]}"#);
    }
}
