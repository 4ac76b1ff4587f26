//! The places of a file that can be changed, found in its syntax.

use std::ops::Range;

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, BinOp, Block, Expr, ImplItemFn, ItemFn, ItemImpl, ItemMod, Lit, Pat};
use syn::{ReturnType, Signature, Stmt, TraitItemFn, UnOp};

use crate::defaults::defaults;

/// The form in which the changes of a site stand beside what is there.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Expressions that take the place of one.
    Instead(Vec<String>),
    /// A condition that is reversed.
    Negated,
    /// A statement that is left out.
    Deleted,
    /// Statements before a function's first one, which return.
    Returns(Vec<String>),
}

/// A place of a file with its changes.
#[derive(Debug)]
pub(crate) struct Site {
    /// Its bytes.
    pub(crate) range: Range<usize>,
    /// The bytes of the function around it.
    pub(crate) within: Range<usize>,
    pub(crate) form: Form,
    /// The names of the changes.
    pub(crate) names: Vec<String>,
    /// Counted from one.
    pub(crate) line: usize,
}

/// The sites of a file.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) sites: Vec<Site>,
    /// Modules in files of their own that are for tests or models.
    pub(crate) left_out: Vec<String>,
}

/// Calls that only count, tell or assert something: what they do is no behaviour of sound code.
const DIAGNOSTICS: [&str; 7] = [
    "stats.",
    "counters.",
    ".bump(",
    "lock_order::",
    "tracing::",
    "taking(",
    "ensure(",
];

/// Looks for the sites of a file.
pub(crate) fn find(text: &str) -> syn::Result<Found> {
    let file = syn::parse_file(text)?;
    let mut finder = Finder {
        text,
        found: Found::default(),
        types: Vec::new(),
        functions: Vec::new(),
        sole: None,
    };
    finder.visit_file(&file);
    Ok(finder.found)
}

struct Finder<'a> {
    text: &'a str,
    found: Found,
    /// The types whose methods are visited.
    types: Vec<String>,
    /// The functions that are visited, with their bytes.
    functions: Vec<(String, Range<usize>)>,
    /// The only statement of a function that returns nothing: the body's change leaves it out.
    sole: Option<Range<usize>>,
}

impl Finder<'_> {
    fn add(&mut self, span: Span, form: Form, changes: Vec<String>) {
        let Some((function, within)) = self.functions.last() else {
            return;
        };
        let named = |change: String| format!("{change} in {function}");
        self.found.sites.push(Site {
            range: span.byte_range(),
            within: within.clone(),
            form,
            names: changes.into_iter().map(named).collect(),
            line: span.start().line,
        });
    }

    fn source(&self, span: Span) -> &str {
        &self.text[span.byte_range()]
    }

    /// The source on one line, and not all of it if it is long.
    fn quoted(&self, span: Span) -> String {
        const LONGEST: usize = 60;
        let words: Vec<&str> = self.source(span).split_whitespace().collect();
        let mut text = words.join(" ").replace(" # ", " ").replace(" .", ".");
        if text.chars().count() > LONGEST {
            text = text.chars().take(LONGEST).collect();
            text.push_str("..");
        }
        format!("`{text}`")
    }

    fn function(&mut self, sig: &Signature, whole: Span, block: &Block) {
        if sig.constness.is_some() {
            return;
        }
        let mut name = sig.ident.to_string();
        if let (Some(own), true) = (self.types.last(), self.functions.is_empty()) {
            name = format!("{own}::{name}");
        }
        self.functions.push((name, whole.byte_range()));
        let outer = self.sole.take();
        let values = match &sig.output {
            ReturnType::Default => vec!["()".to_owned()],
            ReturnType::Type(_, ty) => defaults(ty),
        };
        let body = self.source(block.span()).to_owned();
        let body = body[1..body.len() - 1].trim();
        let values: Vec<String> = values.into_iter().filter(|value| value != body).collect();
        if !body.is_empty() && !values.is_empty() {
            if let ([one], true) = (&block.stmts[..], values == ["()"]) {
                self.sole = Some(one.span().byte_range());
            }
            let names = values.iter().map(|v| format!("replace the body with {v}"));
            let names = names.collect();
            let returns = values.iter().map(|value| format!("return {value}"));
            self.add(block.span(), Form::Returns(returns.collect()), names);
        }
        self.visit_block(block);
        self.sole = outer;
        self.functions.pop();
    }

    fn instead(&mut self, whole: Span, changes: Vec<(String, String)>) {
        let old = self.quoted(whole);
        let names = changes.iter();
        let names = names.map(|(what, _)| format!("replace {old} {what}"));
        let names = names.collect();
        let codes = changes.into_iter().map(|(_, code)| code).collect();
        self.add(whole, Form::Instead(codes), names);
    }

    /// `left old right` with each of `others` for the operator.
    fn operators(&mut self, whole: Span, sides: (Span, Span), others: &[&str]) {
        let (left, right) = (self.source(sides.0), self.source(sides.1));
        let change = |new: &&str| {
            let code = match new.strip_suffix('=') {
                Some(op) if !"<>=!".contains(op) => format!("{left} {new} {right}"),
                _ => format!("({left}) {new} ({right})"),
            };
            (format!("by {new}"), code)
        };
        let changes = others.iter().map(change).collect();
        self.instead(whole, changes);
    }

    /// A condition, if nothing in it is changed as an operator.
    fn condition(&mut self, expr: &Expr) {
        let has_own = match expr {
            Expr::Binary(binary) => !others(&binary.op).is_empty(),
            Expr::Unary(unary) => matches!(unary.op, UnOp::Not(_)),
            Expr::Let(_) | Expr::Lit(_) => true,
            _ => false,
        };
        if !has_own {
            let name = format!("negate {}", self.quoted(expr.span()));
            self.add(expr.span(), Form::Negated, vec![name]);
        }
    }

    /// A statement that is a call whose value is dropped.
    fn call(&mut self, whole: Span, expr: &Expr) {
        let inner = match expr {
            Expr::Try(tried) => &tried.expr,
            _ => expr,
        };
        let is_call = match inner {
            Expr::Call(call) => call.attrs.is_empty(),
            Expr::MethodCall(call) => call.attrs.is_empty(),
            _ => false,
        };
        let text = self.source(whole);
        let is_told = DIAGNOSTICS.iter().any(|word| text.contains(word));
        if is_call && !is_told && self.sole.as_ref() != Some(&whole.byte_range()) {
            let name = format!("delete {}", self.quoted(whole));
            self.add(whole, Form::Deleted, vec![name]);
        }
    }
}

/// The operators that may take the place of `op`.
fn others(op: &BinOp) -> &'static [&'static str] {
    match op {
        BinOp::Add(_) => &["-"],
        BinOp::Sub(_) => &["+"],
        BinOp::Mul(_) => &["/"],
        BinOp::Div(_) => &["*"],
        BinOp::Rem(_) => &["/"],
        BinOp::And(_) => &["||"],
        BinOp::Or(_) => &["&&"],
        BinOp::BitXor(_) | BinOp::BitOr(_) => &["&"],
        BinOp::BitAnd(_) => &["|"],
        BinOp::Shl(_) => &[">>"],
        BinOp::Shr(_) => &["<<"],
        BinOp::Eq(_) => &["!="],
        BinOp::Ne(_) => &["=="],
        BinOp::Lt(_) => &["<=", ">="],
        BinOp::Le(_) => &["<", ">"],
        BinOp::Ge(_) => &[">", "<"],
        BinOp::Gt(_) => &[">=", "<="],
        BinOp::AddAssign(_) => &["-="],
        BinOp::SubAssign(_) => &["+="],
        BinOp::MulAssign(_) => &["/="],
        BinOp::DivAssign(_) => &["*="],
        BinOp::RemAssign(_) => &["/="],
        BinOp::BitXorAssign(_) | BinOp::BitOrAssign(_) => &["&="],
        BinOp::BitAndAssign(_) => &["|="],
        BinOp::ShlAssign(_) => &[">>="],
        BinOp::ShrAssign(_) => &["<<="],
        _ => &[],
    }
}

/// Returns whether a chain of `&&` has a `let`.
fn has_let(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

/// Returns whether something is for tests or models alone.
fn is_apart(attrs: &[Attribute]) -> bool {
    attrs.iter().any(|attr| {
        let list = attr.meta.require_list();
        let told = list.map_or(String::new(), |list| list.tokens.to_string());
        let is_cfg = attr.path().is_ident("cfg") && !told.starts_with("not");
        attr.path().is_ident("test")
            || is_cfg && (told.contains("test") || told.contains("shuttle"))
    })
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        if !is_apart(&item.attrs) {
            self.function(&item.sig, item.span(), &item.block);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        if !is_apart(&item.attrs) {
            self.function(&item.sig, item.span(), &item.block);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast TraitItemFn) {
        if let (Some(block), false) = (&item.default, is_apart(&item.attrs)) {
            self.function(&item.sig, item.span(), block);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        let name = item.ident.to_string();
        if item.content.is_none() && (is_apart(&item.attrs) || name == "tests") {
            self.found.left_out.push(name);
        } else if !is_apart(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        let of = item
            .trait_
            .as_ref()
            .and_then(|(_, path, _)| path.segments.last());
        let only_shows = of.is_some_and(|s| ["Debug", "Display"].iter().any(|n| s.ident == n));
        if only_shows || is_apart(&item.attrs) {
            return;
        }
        let name = match &*item.self_ty {
            syn::Type::Path(path) => path.path.segments.last().map(|s| s.ident.to_string()),
            _ => None,
        };
        self.types.push(name.unwrap_or_else(|| "impl".to_owned()));
        visit::visit_item_impl(self, item);
        self.types.pop();
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.types.push(item.ident.to_string());
        visit::visit_item_trait(self, item);
        self.types.pop();
    }

    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_item_enum(&mut self, _: &'ast syn::ItemEnum) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_pat(&mut self, _: &'ast Pat) {}
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
    fn visit_generic_argument(&mut self, _: &'ast syn::GenericArgument) {}
    fn visit_expr_unsafe(&mut self, _: &'ast syn::ExprUnsafe) {}
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}

    fn visit_expr_repeat(&mut self, expr: &'ast syn::ExprRepeat) {
        self.visit_expr(&expr.expr);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if let Some((_, guard)) = &arm.guard {
            self.condition(guard);
        }
        visit::visit_arm(self, arm);
    }

    fn visit_expr_if(&mut self, expr: &'ast syn::ExprIf) {
        self.condition(&expr.cond);
        visit::visit_expr_if(self, expr);
    }

    fn visit_expr_while(&mut self, expr: &'ast syn::ExprWhile) {
        self.condition(&expr.cond);
        visit::visit_expr_while(self, expr);
    }

    fn visit_stmt(&mut self, stmt: &'ast Stmt) {
        match stmt {
            Stmt::Expr(expr, Some(_)) => self.call(stmt.span(), expr),
            Stmt::Local(local) => {
                if is_apart(&local.attrs) {
                    return;
                }
                if let (Pat::Wild(_), Some(init)) = (&local.pat, &local.init) {
                    self.call(stmt.span(), &init.expr);
                }
            }
            Stmt::Expr(_, None) | Stmt::Item(_) | Stmt::Macro(_) => {}
        }
        visit::visit_stmt(self, stmt);
    }

    fn visit_expr_assign(&mut self, expr: &'ast syn::ExprAssign) {
        if expr.attrs.is_empty() && !matches!(*expr.left, Expr::Infer(_)) {
            self.instead(expr.span(), vec![("by nothing".into(), "()".into())]);
        }
        visit::visit_expr_assign(self, expr);
    }

    fn visit_expr_binary(&mut self, expr: &'ast syn::ExprBinary) {
        let others = others(&expr.op);
        if !others.is_empty() && !has_let(&expr.left) && !has_let(&expr.right) {
            let sides = (expr.left.span(), expr.right.span());
            self.operators(expr.span(), sides, others);
        }
        visit::visit_expr_binary(self, expr);
    }

    fn visit_expr_unary(&mut self, expr: &'ast syn::ExprUnary) {
        if matches!(expr.op, UnOp::Not(_) | UnOp::Neg(_)) {
            let inner = self.source(expr.expr.span()).to_owned();
            self.instead(expr.span(), vec![("without its operator".into(), inner)]);
        }
        visit::visit_expr_unary(self, expr);
    }

    fn visit_expr_lit(&mut self, expr: &'ast syn::ExprLit) {
        if let Lit::Int(int) = &expr.lit
            && let Ok(value) = int.base10_parse::<u128>()
        {
            let code = format!("{}{}", value.saturating_add(1), int.suffix());
            self.instead(expr.span(), vec![(format!("by {code}"), code)]);
        }
    }

    fn visit_expr_method_call(&mut self, expr: &'ast syn::ExprMethodCall) {
        const PAIRS: [(&str, &str); 4] = [
            ("min", "max"),
            ("max", "min"),
            ("any", "all"),
            ("all", "any"),
        ];
        if let Some((_, other)) = PAIRS.iter().find(|(name, _)| expr.method == name)
            && expr.args.len() == 1
        {
            let (whole, method) = (expr.span().byte_range(), expr.method.span().byte_range());
            let before = &self.text[whole.start..method.start];
            let code = format!("{before}{other}{}", &self.text[method.end..whole.end]);
            self.instead(expr.span(), vec![(format!("by {other}"), code)]);
        }
        visit::visit_expr_method_call(self, expr);
    }
}
