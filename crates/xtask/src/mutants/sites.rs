//! Where a source file can be changed, and how: each place of production code at which a small slip of
//! an author would still compile.
//!
//! Constants, patterns, types, attributes and the arguments of macros stay as they are: what is decided
//! there cannot be switched while the program runs.

use crate::Result;
use std::collections::BTreeMap;
use std::ops::Range;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, ReturnType, Stmt, Type, UnOp};

/// How the changes of a site are switched.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Form {
    /// At the start of a function's body: it returns at once.
    Entry,
    /// Behind the pattern of an arm: the arm is not taken.
    Arm,
    /// A statement: it is left out.
    Statement,
    /// An expression: another one stands in its place.
    Expression,
}

/// One change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Alternative {
    /// For people.
    pub what: String,
    /// What stands there instead; empty where the form says all.
    pub text: String,
}

/// A place that can be changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MutationSite {
    /// Bytes of the source.
    pub range: Range<usize>,
    /// How its changes are switched.
    pub form: Form,
    /// In which function.
    pub function: String,
    /// Line and column, from 1.
    pub place: (usize, usize),
    /// Its changes.
    pub alternatives: Vec<Alternative>,
}

/// What was found in a file.
pub struct Found {
    /// In the order of the text, outer ones before inner ones.
    pub sites: Vec<MutationSite>,
    /// Modules in files of their own that only tests have.
    pub test_modules: Vec<String>,
}

/// Looks for places that can be changed.
pub fn find(source: &str) -> Result<Found> {
    let file = syn::parse_file(source)?;
    let mut finder =
        Finder { source, functions: Vec::new(), sites: BTreeMap::new(), test_modules: Vec::new() };
    finder.visit_file(&file);
    Ok(Found { sites: finder.sites.into_values().collect(), test_modules: finder.test_modules })
}

/// Sites by their place: where one begins, the longest first, insertions before what they precede.
type Key = (usize, bool, std::cmp::Reverse<usize>, Form);

struct Finder<'a> {
    source: &'a str,
    /// Types and functions around the present place.
    functions: Vec<String>,
    sites: BTreeMap<Key, MutationSite>,
    test_modules: Vec<String>,
}

impl Finder<'_> {
    fn text(&self, node: &impl Spanned) -> &str {
        &self.source[node.span().byte_range()]
    }

    fn add(&mut self, range: Range<usize>, form: Form, what: &str, text: String) {
        self.add_at(range.start, range, form, what, text);
    }

    /// The same where the place that people read is not the first: operands of one expression may
    /// begin where it begins.
    fn add_at(&mut self, at: usize, range: Range<usize>, form: Form, what: &str, text: String) {
        let before = &self.source[..at];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |rest| rest.chars().count()) + 1;
        let key = (range.start, !range.is_empty(), std::cmp::Reverse(range.end), form);
        let function = self.functions.join("::");
        let site = self.sites.entry(key).or_insert_with(|| MutationSite {
            range,
            form,
            function,
            place: (line, column),
            alternatives: Vec::new(),
        });
        site.alternatives.push(Alternative { what: what.to_owned(), text });
    }

    fn expression(&mut self, node: &impl Spanned, what: &str, text: String) {
        self.add(node.span().byte_range(), Form::Expression, what, text);
    }

    /// What a condition may be instead of what it is.
    fn constant(&mut self, condition: &Expr, values: &[bool]) {
        // What a `let` binds is used behind it: such a condition stays, apart from its parts.
        if !has_let(condition) && !matches!(condition, Expr::Lit(_)) {
            for value in values {
                self.expression(condition, &format!("condition is {value}"), value.to_string());
            }
        }
    }

    fn function(&mut self, name: &syn::Ident, signature: &syn::Signature, block: &syn::Block) {
        if signature.constness.is_some() {
            return;
        }
        self.functions.push(name.to_string());
        if !block.stmts.is_empty() {
            let start = block.brace_token.span.open().byte_range().end;
            // What it returns anyway is no change.
            let only = match &block.stmts[..] {
                [Stmt::Expr(only, None)] => self.text(only).to_owned(),
                _ => String::new(),
            };
            for value in returns(&signature.output) {
                if !only.is_empty() && *value == only {
                    continue;
                }
                let what = format!("returns {}", if value.is_empty() { "at once" } else { *value });
                self.add(start..start, Form::Entry, &what, (*value).to_owned());
            }
        }
        self.visit_block(block);
        self.functions.pop();
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        match item {
            syn::Item::Fn(item) if !is_test(&item.attrs) => {
                self.function(&item.sig.ident, &item.sig, &item.block);
            }
            syn::Item::Mod(item) => match is_test(&item.attrs) {
                true if item.content.is_none() => self.test_modules.push(item.ident.to_string()),
                true => {}
                false => visit::visit_item_mod(self, item),
            },
            syn::Item::Impl(item) if !is_test(&item.attrs) => {
                let name = self.text(&item.self_ty).to_owned();
                self.functions.push(name);
                visit::visit_item_impl(self, item);
                self.functions.pop();
            }
            syn::Item::Trait(item) if !is_test(&item.attrs) => {
                self.functions.push(item.ident.to_string());
                visit::visit_item_trait(self, item);
                self.functions.pop();
            }
            // Constants are made when the program is compiled; the rest holds no code of its own.
            _ => {}
        }
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        if let syn::ImplItem::Fn(item) = item
            && !is_test(&item.attrs)
        {
            self.function(&item.sig.ident, &item.sig, &item.block);
        }
    }

    fn visit_trait_item(&mut self, item: &'ast syn::TraitItem) {
        if let syn::TraitItem::Fn(item) = item
            && let Some(block) = &item.default
            && !is_test(&item.attrs)
        {
            self.function(&item.sig.ident, &item.sig, block);
        }
    }

    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
    fn visit_type(&mut self, _: &'ast Type) {}
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
    fn visit_path(&mut self, _: &'ast syn::Path) {}
    fn visit_angle_bracketed_generic_arguments(
        &mut self,
        _: &'ast syn::AngleBracketedGenericArguments,
    ) {
    }
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}

    fn visit_expr_repeat(&mut self, repeat: &'ast syn::ExprRepeat) {
        // The length is part of the type.
        self.visit_expr(&repeat.expr);
    }

    fn visit_stmt(&mut self, stmt: &'ast Stmt) {
        if let Stmt::Expr(expr, semicolon) = stmt {
            if is_test(attributes(expr)) {
                return;
            }
            let call = match expr {
                Expr::Try(inner) => &*inner.expr,
                other => other,
            };
            let is_effect = match call {
                Expr::Call(_) | Expr::MethodCall(_) | Expr::Assign(_) => true,
                Expr::Binary(binary) => is_assignment(&binary.op),
                _ => false,
            };
            if is_effect && semicolon.is_some() {
                let range = stmt.span().byte_range();
                self.add(range, Form::Statement, "statement left out", String::new());
            }
        }
        // What a macro makes of its arguments is not known.
        if !matches!(stmt, Stmt::Macro(_)) {
            visit::visit_stmt(self, stmt);
        }
    }

    fn visit_expr_if(&mut self, expr: &'ast syn::ExprIf) {
        self.constant(&expr.cond, &[true, false]);
        visit::visit_expr_if(self, expr);
    }

    fn visit_expr_while(&mut self, expr: &'ast syn::ExprWhile) {
        self.constant(&expr.cond, &[false]);
        visit::visit_expr_while(self, expr);
    }

    fn visit_expr_match(&mut self, expr: &'ast syn::ExprMatch) {
        let has_rest =
            expr.arms.last().is_some_and(|last| last.guard.is_none() && takes_all(&last.pat));
        let count = expr.arms.len();
        for (at, arm) in expr.arms.iter().enumerate() {
            if let Some((_, guard)) = &arm.guard {
                self.constant(guard, &[true, false]);
            } else if has_rest && at + 1 < count {
                let end = arm.pat.span().byte_range().end;
                let what = format!("arm `{}` is not taken", flat(self.text(&arm.pat)));
                self.add(end..end, Form::Arm, &what, String::new());
            }
        }
        visit::visit_expr_match(self, expr);
    }

    fn visit_expr_macro(&mut self, expr: &'ast syn::ExprMacro) {
        if expr.mac.path.is_ident("matches") {
            let text = format!("!{}", self.text(expr));
            self.expression(expr, "`matches!` is negated", text);
        }
    }

    fn visit_expr_unary(&mut self, expr: &'ast syn::ExprUnary) {
        let what = match expr.op {
            UnOp::Not(_) => "`!` left out",
            UnOp::Neg(_) => "`-` left out",
            _ => return visit::visit_expr_unary(self, expr),
        };
        let text = self.text(&*expr.expr).to_owned();
        self.expression(expr, what, text);
        visit::visit_expr_unary(self, expr);
    }

    fn visit_expr_binary(&mut self, expr: &'ast syn::ExprBinary) {
        if !has_let(&expr.left) && !has_let(&expr.right) {
            let (left, right) = (self.text(&*expr.left), self.text(&*expr.right));
            let was = self.text(&expr.op).to_owned();
            let texts: Vec<(String, String)> = others(&expr.op)
                .iter()
                .map(|op| {
                    let text = match is_assignment(&expr.op) {
                        true => format!("{left} {op} ({right})"),
                        false => format!("({left}) {op} ({right})"),
                    };
                    (format!("`{was}` is `{op}`"), text)
                })
                .collect();
            for (what, text) in texts {
                let (at, range) = (expr.op.span().byte_range().start, expr.span().byte_range());
                self.add_at(at, range, Form::Expression, &what, text);
            }
        }
        visit::visit_expr_binary(self, expr);
    }

    fn visit_expr_lit(&mut self, expr: &'ast syn::ExprLit) {
        match &expr.lit {
            syn::Lit::Int(number) => {
                if let Some(next) =
                    number.base10_parse::<u128>().ok().and_then(|n| n.checked_add(1))
                {
                    let what = format!("{number} is {next}");
                    self.expression(expr, &what, format!("{next}{}", number.suffix()));
                }
            }
            syn::Lit::Bool(value) => {
                let other = (!value.value).to_string();
                self.expression(expr, &format!("{} is {other}", value.value), other);
            }
            _ => {}
        }
    }
}

/// One line of a text that may have several.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && attribute
                    .parse_args::<syn::Path>()
                    .is_ok_and(|condition| condition.is_ident("test"))
    })
}

fn attributes(expr: &Expr) -> &[syn::Attribute] {
    match expr {
        Expr::Call(expr) => &expr.attrs,
        Expr::MethodCall(expr) => &expr.attrs,
        Expr::Assign(expr) => &expr.attrs,
        Expr::Binary(expr) => &expr.attrs,
        Expr::Block(expr) => &expr.attrs,
        Expr::If(expr) => &expr.attrs,
        Expr::Macro(expr) => &expr.attrs,
        _ => &[],
    }
}

/// A pattern that every value fits. A name with a capital is that of a variant.
fn takes_all(pattern: &syn::Pat) -> bool {
    match pattern {
        syn::Pat::Wild(_) => true,
        syn::Pat::Ident(name) => {
            let text = name.ident.to_string();
            name.subpat.is_none() && text.starts_with(|c: char| c.is_lowercase() || c == '_')
        }
        _ => false,
    }
}

/// A condition that binds something.
fn has_let(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

fn is_assignment(op: &BinOp) -> bool {
    use BinOp::*;
    matches!(
        op,
        AddAssign(_)
            | SubAssign(_)
            | MulAssign(_)
            | DivAssign(_)
            | RemAssign(_)
            | BitXorAssign(_)
            | BitAndAssign(_)
            | BitOrAssign(_)
            | ShlAssign(_)
            | ShrAssign(_)
    )
}

/// Operators that an author might have written instead.
fn others(op: &BinOp) -> &'static [&'static str] {
    match op {
        BinOp::Lt(_) => &["<=", ">", "=="],
        BinOp::Le(_) => &["<", ">"],
        BinOp::Gt(_) => &[">=", "<", "=="],
        BinOp::Ge(_) => &[">", "<"],
        BinOp::Eq(_) => &["!="],
        BinOp::Ne(_) => &["=="],
        BinOp::And(_) => &["||"],
        BinOp::Or(_) => &["&&"],
        BinOp::Add(_) => &["-", "*"],
        BinOp::Sub(_) => &["+", "/"],
        BinOp::Mul(_) => &["+", "/"],
        BinOp::Div(_) => &["*", "%"],
        BinOp::Rem(_) => &["/", "+"],
        BinOp::BitXor(_) => &["|", "&"],
        BinOp::BitAnd(_) => &["|"],
        BinOp::BitOr(_) => &["&", "^"],
        BinOp::Shl(_) => &[">>"],
        BinOp::Shr(_) => &["<<"],
        BinOp::AddAssign(_) => &["-=", "*="],
        BinOp::SubAssign(_) => &["+=", "/="],
        BinOp::MulAssign(_) => &["+=", "/="],
        BinOp::DivAssign(_) => &["*=", "%="],
        BinOp::RemAssign(_) => &["/=", "+="],
        BinOp::BitXorAssign(_) => &["|=", "&="],
        BinOp::BitAndAssign(_) => &["|="],
        BinOp::BitOrAssign(_) => &["&=", "^="],
        BinOp::ShlAssign(_) => &[">>="],
        BinOp::ShrAssign(_) => &["<<="],
        _ => &[],
    }
}

/// Values that a function may return without having done anything.
fn returns(output: &ReturnType) -> &'static [&'static str] {
    let ReturnType::Type(_, kind) = output else { return &[""] };
    match &**kind {
        Type::Tuple(tuple) if tuple.elems.is_empty() => &[""],
        Type::Path(path) => {
            let Some(last) = path.path.segments.last() else { return &[] };
            match last.ident.to_string().as_str() {
                "bool" => &["true", "false"],
                "u8" | "u16" | "u32" | "u64" | "usize" | "i8" | "i16" | "i32" | "i64" | "isize" => {
                    &["0", "1"]
                }
                "f32" | "f64" => &["0.0", "1.0"],
                "String" => &["String::new()"],
                "Vec" => &["Vec::new()"],
                "Option" => &["None", "Some(Default::default())"],
                "Result" => &["Ok(Default::default())"],
                "BTreeMap" | "BTreeSet" | "HashMap" | "HashSet" => &["Default::default()"],
                _ => &[],
            }
        }
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(source: &str) -> Vec<String> {
        let found = find(source).expect("it parses");
        let of = |site: &MutationSite| {
            let place = format!("{} {}:{}", site.function, site.place.0, site.place.1);
            site.alternatives.iter().map(move |a| format!("{place} {}", a.what)).collect::<Vec<_>>()
        };
        found.sites.iter().flat_map(of).collect()
    }

    #[test]
    fn conditions_operators_and_results_are_changed() {
        let source = "fn less(a: u32, b: u32) -> bool {\n    if !(a < b) { return true; }\n    a + 1 == b\n}\n";
        let expected = [
            "less 1:34 returns true",
            "less 1:34 returns false",
            "less 2:8 condition is true",
            "less 2:8 condition is false",
            "less 2:8 `!` left out",
            "less 2:12 `<` is `<=`",
            "less 2:12 `<` is `>`",
            "less 2:12 `<` is `==`",
            "less 2:26 true is false",
            "less 3:11 `==` is `!=`",
            "less 3:7 `+` is `-`",
            "less 3:7 `+` is `*`",
            "less 3:9 1 is 2",
        ];
        assert_eq!(changes(source), expected);
    }

    #[test]
    fn statements_are_left_out_and_arms_not_taken_where_another_one_is() {
        let source = "impl A { fn f(&mut self, a: u8) { self.g(); self.n += 2; let _x = match a { 1 | 2 => 5,\n\
                      n if n > 7 => 6, _ => 7 }; match a { 0 => {} 1..=255 => {} } } }";
        let found = changes(source);
        let has = |what: &str| found.iter().any(|change| change.contains(what));
        assert_eq!(found.iter().filter(|c| c.contains("statement left out")).count(), 2);
        assert!(has("A::f 1:52 `+=` is `-=`") && has("arm `1 | 2` is not taken"), "{found:?}");
        assert!(has("2:6 condition is true") && has("2:6 `>` is `>=`"), "{found:?}");
        assert!(!has("arm `0`"), "every arm is needed there");
    }

    #[test]
    fn constants_patterns_types_macros_and_tests_stay() {
        let source = "const A: [u8; 3] = [1 + 2; 3];\n\
            const fn f(a: u8) -> u8 { a + 1 }\n\
            fn g(a: Option<[u8; 2]>) -> &'static str { if let Some([1, _]) = a { println!(\"{}\", 1 + 1); } \"\" }\n\
            #[cfg(test)]\nmod tests { fn h() -> bool { 1 < 2 } }\n\
            #[cfg(test)]\nmod others;\nmod own;\n\
            #[test]\nfn t() { assert!(1 < 2); }\n";
        assert_eq!(changes(source), [""; 0]);
        assert_eq!(find(source).expect("it parses").test_modules, ["others"]);
    }

    #[test]
    fn what_a_function_returns_anyway_is_no_change_of_it() {
        let of = |body: &str| changes(&format!("fn f() -> Option<u8> {{ {body} }}")).len();
        assert_eq!([of("None"), of("g()")], [1, 2]);
    }

    #[test]
    fn a_chain_that_binds_stays_but_its_parts_do_not() {
        let source = "fn f(a: Option<u8>) { if let Some(b) = a && b > 1 { drop(a); } }";
        let expected = [
            "f 1:22 returns at once",
            "f 1:47 `>` is `>=`",
            "f 1:47 `>` is `<`",
            "f 1:47 `>` is `==`",
            "f 1:49 1 is 2",
            "f 1:53 statement left out",
        ];
        assert_eq!(changes(source), expected);
    }
}
