//! The values that a function may return instead of what it finds.

use syn::{GenericArgument, PathArguments, Type};

const INTEGERS: [&str; 10] = [
    "u8", "u16", "u32", "u64", "usize", "i8", "i16", "i32", "i64", "isize",
];

/// Values of a type, as code; none for types of which no value is known.
pub(crate) fn defaults(ty: &Type) -> Vec<String> {
    match ty {
        Type::Tuple(tuple) if tuple.elems.is_empty() => vec!["()".to_owned()],
        Type::Path(path) => {
            let Some(last) = path.path.segments.last() else {
                return Vec::new();
            };
            let name = last.ident.to_string();
            match name.as_str() {
                "bool" => vec!["true".to_owned(), "false".to_owned()],
                "Option" => vec!["None".to_owned()],
                "Result" => {
                    let values = first(&last.arguments).map(defaults).unwrap_or_default();
                    values.iter().map(|value| format!("Ok({value})")).collect()
                }
                _ if INTEGERS.contains(&name.as_str()) => vec!["0".to_owned(), "1".to_owned()],
                _ => Vec::new(),
            }
        }
        _ => Vec::new(),
    }
}

fn first(arguments: &PathArguments) -> Option<&Type> {
    let PathArguments::AngleBracketed(list) = arguments else {
        return None;
    };
    list.args.iter().find_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    })
}
