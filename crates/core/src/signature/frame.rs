//! Lines of stack traces: which function they name, and whether it is the program's own.

/// What a line of a trace says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Line<'t> {
    /// A call: the name of its function; `own` if it is the program's own code.
    Call { name: &'t str, own: bool },
    /// Part of a trace that says nothing of the cause: places, carets, `… 12 more`.
    Noise,
    /// Anything else.
    Text,
}

/// Reads a line that may belong to a trace; `next` is the line after it.
pub(super) fn read<'t>(line: &'t str, next: Option<&str>) -> Line<'t> {
    let text = line.trim();
    if is_noise(text) {
        return Line::Noise;
    }
    at_call(text)
        .or_else(|| python_call(text))
        .or_else(|| go_call(line, next))
        .or_else(|| ruby_call(text))
        .or_else(|| php_call(text))
        .or_else(|| elixir_call(text))
        .unwrap_or(Line::Text)
}

fn is_noise(text: &str) -> bool {
    let carets = !text.is_empty() && text.bytes().all(|b| matches!(b, b'^' | b'~' | b' ' | b'|' | b'-'));
    carets && text.contains(['^', '~'])
        || text.starts_with("... ") && (text.ends_with(" more") || text.ends_with("omitted"))
        || text.starts_with("--- End of")
        || text.starts_with("[Previous line repeated")
        || text.starts_with("note: run with `RUST_BACKTRACE")
        || text.starts_with("note: Some details are omitted")
        || text.starts_with("created by ")
        || (text.starts_with("goroutine ") && text.ends_with("]:"))
}

/// `at name(place)` of Java, .NET and Node; `at place` of Rust and Node.
fn at_call(text: &str) -> Option<Line<'_>> {
    let rest = text.strip_prefix("at ")?;
    let Some((name, place)) = rest.split_once('(') else {
        let place = rest.rsplit(':').next().is_some_and(|last| last.parse::<u32>().is_ok());
        return (place && !rest.contains(' ')).then_some(Line::Noise);
    };
    let mut name = name.trim();
    if name.starts_with('[') {
        // A place in a document: `at [Source: (String)"{…}"; line: 1, column: 5]`.
        return Some(Line::Noise);
    }
    for prefix in ["async ", "new ", "Object.", "lambda_method"] {
        name = name.strip_prefix(prefix).unwrap_or(name);
    }
    let closed = place.contains(')');
    if name.contains(' ') && !name.contains("[as") || !closed {
        return None;
    }
    // `java.base/java.lang.Thread.run` and `app//com.acme.Main.main` name the module first.
    let name =
        name.rsplit_once('/').filter(|(module, _)| !module.contains('$')).map_or(name, |(_, name)| name);
    let foreign =
        ["java.", "javax.", "jdk.", "sun.", "com.sun.", "scala.", "kotlin.", "System.", "Microsoft."];
    let library = foreign.iter().any(|root| name.starts_with(root))
        || ["$$Lambda", "GeneratedMethodAccessor"].iter().any(|made| name.contains(made))
        || ["node:", "internal/", "node_modules"].iter().any(|mark| place.contains(mark));
    Some(Line::Call { name, own: !library })
}

/// `File "path", line 12, in name`.
fn python_call(text: &str) -> Option<Line<'_>> {
    let rest = text.strip_prefix("File \"")?;
    let (path, rest) = rest.split_once("\", line ")?;
    let name = rest.split_once(", in ").map_or("<module>", |(_, name)| name);
    let library = ["site-packages", "dist-packages", "/lib/python", "\\lib\\", "<frozen"]
        .iter()
        .any(|mark| path.contains(mark));
    Some(Line::Call { name, own: !library })
}

/// `package.function(arguments)` with its place in the next line, behind a tab.
fn go_call<'t>(line: &'t str, next: Option<&str>) -> Option<Line<'t>> {
    if line.starts_with('\t') && line.contains(".go:") {
        return Some(Line::Noise);
    }
    let place = next.is_some_and(|next| next.starts_with('\t') && next.contains(".go:"));
    let (name, _) = line.rsplit_once('(').filter(|_| place)?;
    // The arguments of a method's receiver hold parentheses too: `main.(*Server).handle(0xc0, {…})`.
    let name = match line.find("({").or_else(|| line.find("(0x")).or_else(|| line.find("(...)")) {
        Some(arguments) => &line[..arguments],
        None => name,
    };
    let base = name.rsplit('/').next().unwrap_or(name);
    let library = name == "panic"
        || ["runtime.", "runtime/debug.", "net/http.", "testing.", "reflect.", "sync."]
            .iter()
            .any(|root| name.starts_with(root));
    Some(Line::Call { name: base, own: !library })
}

/// `from path.rb:12:in 'name'`; the first line of a trace has the message behind it and stays text.
fn ruby_call(text: &str) -> Option<Line<'_>> {
    let (path, rest) = text.split_once(":in ")?;
    let rest = rest.strip_prefix(['`', '\''])?;
    let name = rest.strip_suffix('\'')?;
    let library = path.contains("/gems/") || path.contains("/lib/ruby/");
    (path.contains(".rb:") && !name.contains('\'')).then_some(Line::Call { name, own: !library })
}

/// `#0 path.php(12): Class->name()`.
fn php_call(text: &str) -> Option<Line<'_>> {
    let rest = text.strip_prefix('#')?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let rest = rest.get(digits..)?.strip_prefix(' ')?;
    if rest == "{main}" || digits == 0 {
        return (digits > 0).then_some(Line::Noise);
    }
    let (place, name) = rest.split_once(": ")?;
    let known = place == "[internal function]" || place.contains(".php(");
    known.then_some(Line::Call {
        name: name.split('(').next().unwrap_or(name),
        own: !place.contains("/vendor/"),
    })
}

/// `(app 1.0.0) lib/path.ex:12: Module.name/2`.
fn elixir_call(text: &str) -> Option<Line<'_>> {
    let rest = text.strip_prefix('(')?;
    let (application, rest) = rest.split_once(") ")?;
    let (place, name) = rest.split_once(": ")?;
    let known = place.contains(".ex:") || place.contains(".exs:") || place.contains(".erl:");
    let library = ["stdlib", "elixir", "kernel"].iter().any(|name| application.starts_with(name));
    known.then_some(Line::Call { name, own: !library })
}

/// `  3: module::name` of a Rust backtrace, with or without the address.
pub(super) fn rust_call(line: &str) -> Option<Line<'_>> {
    let (number, rest) = line.trim_start().split_once(": ")?;
    if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let name = match rest.split_once(" - ") {
        Some((address, name)) if address.trim_start().starts_with("0x") => name,
        _ => rest,
    };
    let foreign = [
        "std::", "core::", "alloc::", "tokio::", "futures", "<alloc::", "<core::", "<std::", "rust_", "__",
        "_start",
    ];
    let foreign_crate = [
        "test::",
        "anyhow::",
        "<anyhow::",
        "backtrace::",
        "<futures",
        "<tokio",
        "clone",
        "start_thread",
        "main",
    ];
    let library = foreign.iter().chain(&foreign_crate).any(|root| name.starts_with(root))
        && !name.starts_with("main::");
    Some(Line::Call { name, own: !library })
}

/// The name without what changes between builds and runs: numbers, hashes, arguments.
pub(super) fn stable_name(name: &str) -> String {
    let name = super::token::without_symbol_hash(name.trim());
    let mut stable = String::with_capacity(name.len().min(128));
    let mut skip_hash = false;
    for (at, c) in name.char_indices().take(160) {
        if name[at..].starts_with("$$") {
            // Classes made at run time: `Service$$EnhancerBySpringCGLIB$$1a2b3c`.
            skip_hash = true;
        } else if skip_hash && (c == '.' || c == ':') {
            skip_hash = false;
        }
        if !skip_hash && !c.is_ascii_digit() && !c.is_whitespace() && !c.is_control() {
            stable.push(c);
        }
    }
    stable
}
