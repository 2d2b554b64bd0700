//! Finds the places in one file where something is decided: comparisons, conditions, guards, calls for their effect, results.

use std::ops::Range;

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, ExprBinary, ImplItemFn, ItemFn, ReturnType, Stmt, Type, UnOp};

use crate::site::Site;

/// All places of a file.
pub(crate) fn sites(text: &str, file: &syn::File) -> Vec<Site> {
    let mut finder = Finder { text, function: Vec::new(), found: Vec::new() };
    finder.visit_file(file);
    finder.found
}

struct Finder<'a> {
    text: &'a str,
    function: Vec<String>,
    found: Vec<Site>,
}

impl Finder<'_> {
    fn text(&self, span: Span) -> &str {
        &self.text[span.byte_range()]
    }

    fn add(&mut self, range: Range<usize>, line: usize, before: String, after: &str, name: String) {
        let Some(function) = self.function.last().cloned() else { return };
        let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
        self.found.push(Site { range, before, after: after.to_owned(), function, name, line });
    }

    /// The expression, or `mutant` in its place.
    fn swap(&mut self, expr: &Expr, mutant: &str) {
        let span = expr.span();
        if self.is_out(span) {
            return;
        }
        let name = format!("{} -> {mutant}", self.text(span));
        let before = format!("(if {{call}} {{ {mutant} }} else {{ ");
        self.add(span.byte_range(), span.start().line, before, " })", name);
    }

    /// What is there for tests, or only words for a reader.
    fn is_out(&self, span: Span) -> bool {
        let text = self.text(span);
        ["planted", "plants", "crashpoint", "crash_point", "fmt::"].iter().any(|word| text.contains(word))
    }

    fn condition(&mut self, cond: &Expr, always: bool) {
        if holds_let(cond) {
            return;
        }
        self.swap(cond, "false");
        if always {
            self.swap(cond, "true");
        }
    }

    fn in_function(&mut self, name: String, go: impl FnOnce(&mut Self)) {
        self.function.push(name);
        go(self);
        self.function.pop();
    }

    /// A constant in place of what a function computes.
    fn result(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let ReturnType::Type(_, kind) = &signature.output else { return };
        let values: &[&str] = match named(kind).as_deref() {
            Some("bool") => &["true", "false"],
            Some("Option") => &["None"],
            Some("Result") if self.text(kind.span()).contains("<()") => &["Ok(())"],
            Some("u8" | "u16" | "u32" | "u64" | "usize" | "i16" | "i32" | "i64") => &["0", "1"],
            _ => &[],
        };
        // An empty body computes nothing.
        if block.stmts.is_empty() || self.is_out(block.span()) {
            return;
        }
        let at = block.brace_token.span.open().byte_range().end;
        let line = signature.span().start().line;
        for value in values {
            let before = format!(" if {{call}} {{ return {value}; }}");
            self.add(at..at, line, before, "", format!("returns {value}"));
        }
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let of = item.trait_.as_ref().and_then(|(_, path, _)| path.segments.last()).map(|last| last.ident.to_string());
        if !is_test(&item.attrs) && !matches!(of.as_deref(), Some("Debug" | "Display" | "Error")) {
            visit::visit_item_impl(self, item);
        }
    }

    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}
    fn visit_type(&mut self, _: &'ast Type) {}
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        if item.sig.constness.is_some() || is_test(&item.attrs) {
            return;
        }
        self.in_function(item.sig.ident.to_string(), |finder| {
            finder.result(&item.sig, &item.block);
            visit::visit_block(finder, &item.block);
        });
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        if item.sig.constness.is_some() || is_test(&item.attrs) {
            return;
        }
        self.in_function(item.sig.ident.to_string(), |finder| {
            finder.result(&item.sig, &item.block);
            visit::visit_block(finder, &item.block);
        });
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.in_function(item.sig.ident.to_string(), |finder| visit::visit_block(finder, block));
        }
    }

    fn visit_expr_binary(&mut self, expr: &'ast ExprBinary) {
        let other = match &expr.op {
            BinOp::Eq(_) => "!=",
            BinOp::Ne(_) => "==",
            BinOp::Lt(_) => "<=",
            BinOp::Le(_) => "<",
            BinOp::Gt(_) => ">=",
            BinOp::Ge(_) => ">",
            BinOp::And(_) => "||",
            BinOp::Or(_) => "&&",
            BinOp::Add(_) => "-",
            BinOp::Sub(_) => "+",
            _ => "",
        };
        if !other.is_empty() && !holds_let(&expr.left) && !holds_let(&expr.right) {
            let mutant = format!("{} {other} {}", self.text(expr.left.span()), self.text(expr.right.span()));
            self.swap(&Expr::Binary(expr.clone()), &mutant);
        }
        visit::visit_expr_binary(self, expr);
    }

    fn visit_expr_unary(&mut self, expr: &'ast syn::ExprUnary) {
        if matches!(expr.op, UnOp::Not(_)) {
            let mutant = self.text(expr.expr.span()).to_owned();
            self.swap(&Expr::Unary(expr.clone()), &mutant);
        }
        visit::visit_expr_unary(self, expr);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let other = match call.method.to_string().as_str() {
            "is_some" => "is_none",
            "is_none" => "is_some",
            "is_ok" => "is_err",
            "is_err" => "is_ok",
            "min" if call.args.len() == 1 => "max",
            "max" if call.args.len() == 1 => "min",
            "any" => "all",
            "all" => "any",
            _ => "",
        };
        if !other.is_empty() {
            let whole = call.span().byte_range();
            let name = call.method.span().byte_range();
            let mutant = format!("{}{other}{}", &self.text[whole.start..name.start], &self.text[name.end..whole.end]);
            self.swap(&Expr::MethodCall(call.clone()), &mutant);
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_if(&mut self, expr: &'ast syn::ExprIf) {
        self.condition(&expr.cond, true);
        visit::visit_expr_if(self, expr);
    }

    fn visit_expr_while(&mut self, expr: &'ast syn::ExprWhile) {
        self.condition(&expr.cond, false);
        visit::visit_expr_while(self, expr);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if let Some((_, guard)) = &arm.guard {
            self.condition(guard, true);
        }
        visit::visit_arm(self, arm);
    }

    fn visit_stmt(&mut self, stmt: &'ast Stmt) {
        if let Stmt::Expr(expr, Some(_)) = stmt
            && is_call(expr)
            && !self.is_out(stmt.span())
        {
            let name = format!("without {}", self.text(stmt.span()));
            let span = stmt.span();
            self.add(span.byte_range(), span.start().line, "if !{call} { ".to_owned(), " }", name);
        }
        visit::visit_stmt(self, stmt);
    }
}

/// A call or an assignment whose value is thrown away: it is there for what it does.
fn is_call(expr: &Expr) -> bool {
    match expr {
        Expr::Call(_) | Expr::MethodCall(_) | Expr::Assign(_) => true,
        Expr::Await(inner) => is_call(&inner.base),
        Expr::Try(inner) => is_call(&inner.expr),
        Expr::Binary(inner) => matches!(inner.op, BinOp::AddAssign(_) | BinOp::SubAssign(_) | BinOp::BitOrAssign(_)),
        _ => false,
    }
}

/// `let` in a chain of conditions can't stand inside an expression.
fn holds_let(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(inner) => holds_let(&inner.left) || holds_let(&inner.right),
        Expr::Paren(inner) => holds_let(&inner.expr),
        _ => false,
    }
}

fn is_test(attrs: &[syn::Attribute]) -> bool {
    attrs.iter().any(|attr| match &attr.meta {
        syn::Meta::Path(path) => path.is_ident("test"),
        syn::Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string().contains("test"),
        syn::Meta::NameValue(_) => false,
    })
}

fn named(kind: &Type) -> Option<String> {
    match kind {
        Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
        _ => None,
    }
}
