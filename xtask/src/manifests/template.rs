//! The part of Go's template language that the chart uses. Anything else in a template is an error,
//! because the result could differ from Helm's.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use super::yaml;

/// What a template can name.
pub struct TemplateScope<'a> {
    /// `.Values`, `.Chart`, `.Release`.
    pub data: &'a Value,
    /// `.Files.Get`.
    pub file: &'a dyn Fn(&str) -> Result<String>,
    /// `include`.
    pub defined: &'a BTreeMap<String, String>,
    /// `lookup`: what is there already, as kind and name.
    pub installed: &'a [(&'a str, &'a str)],
}

/// The texts between each `define` of a template and its `end`, by name.
pub fn definitions(template: &str) -> Result<BTreeMap<String, String>> {
    let mut defined = BTreeMap::new();
    // Name and begin of the one that is open, and how many ends come before its own.
    let mut open: Option<(String, usize)> = None;
    let mut depth = 0;
    let mut rest = template;
    while let Some((before, action, behind)) = next_action(rest)? {
        let at = template.len() - rest.len() + before.len();
        rest = behind;
        match (tokens(action)?.as_slice(), &open) {
            (
                [
                    TemplateToken::Name("define"),
                    TemplateToken::Literal(Value::String(name)),
                ],
                None,
            ) => {
                open = Some((name.clone(), template.len() - rest.len()));
            }
            ([TemplateToken::Name("if"), ..], Some(_)) => depth += 1,
            ([TemplateToken::Name("end")], Some((name, begin))) if depth == 0 => {
                defined.insert(name.clone(), template[*begin..at].to_owned());
                open = None;
            }
            ([TemplateToken::Name("end")], Some(_)) => depth -= 1,
            (_, Some(_)) => {}
            (_, None) => bail!("{{{{ {action} }}}} is in no define"),
        }
    }
    ensure!(open.is_none(), "define without end");
    Ok(defined)
}

/// `{{ if }}` that is open: whether it or its `else` is written now.
struct Open {
    /// Whether what is around it is written at all.
    around: bool,
    condition: bool,
    in_else: bool,
}

impl Open {
    fn writes(&self) -> bool {
        self.around && self.condition != self.in_else
    }
}

/// The text of a template with everything in braces carried out.
pub fn render(template: &str, scope: &TemplateScope<'_>) -> Result<String> {
    let mut out = String::new();
    let mut open: Vec<Open> = Vec::new();
    let mut rest = template;
    while let Some((before, action, behind)) = next_action(rest)? {
        let writes = open.last().is_none_or(Open::writes);
        if writes {
            out.push_str(before);
        }
        rest = behind;
        let tokens = tokens(action).with_context(|| format!("{{{{ {action} }}}}"))?;
        match tokens.first() {
            Some(TemplateToken::Name("if")) => {
                let condition = writes && is_true(&pipeline(&tokens[1..], scope)?);
                open.push(Open {
                    around: writes,
                    condition,
                    in_else: false,
                });
            }
            Some(TemplateToken::Name("else")) if tokens.len() == 1 => {
                let last = open.last_mut().context("else without if")?;
                ensure!(!last.in_else, "two else in one if");
                last.in_else = true;
            }
            Some(TemplateToken::Name("end")) if tokens.len() == 1 => {
                open.pop().context("end without if")?;
            }
            _ if writes => {
                let value = pipeline(&tokens, scope).with_context(|| action.to_owned())?;
                out.push_str(&printed(&value).with_context(|| action.to_owned())?);
            }
            _ => {}
        }
    }
    ensure!(open.is_empty(), "if without end");
    out.push_str(rest);
    Ok(out)
}

/// What stands before the next `{{ … }}`, what stands in it, and what stands behind, without the
/// blanks that its dashes take away.
fn next_action(text: &str) -> Result<Option<(&str, &str, &str)>> {
    let Some((before, inside)) = text.split_once("{{") else {
        return Ok(None);
    };
    let (inside, behind) = inside.split_once("}}").context("{{ without }}")?;
    let (before, inside) = match inside.strip_prefix("- ") {
        Some(inside) => (before.trim_end(), inside),
        None => (before, inside),
    };
    let (inside, behind) = match inside.strip_suffix(" -") {
        Some(inside) => (inside, behind.trim_start()),
        None => (inside, behind),
    };
    Ok(Some((before, inside.trim(), behind)))
}

#[derive(Debug, Clone, PartialEq)]
enum TemplateToken<'a> {
    /// A function or a keyword.
    Name(&'a str),
    /// `.Values.a.b`, without the first dot.
    Field(&'a str),
    Literal(Value),
    /// In parentheses.
    Group(Vec<TemplateToken<'a>>),
    Pipe,
}

/// The tokens of an action. Strings contain no escapes.
fn tokens(action: &str) -> Result<Vec<TemplateToken<'_>>> {
    let mut tokens = Vec::new();
    let mut rest = action.trim_start();
    while !rest.is_empty() {
        if let Some(string) = rest.strip_prefix('"') {
            let (string, behind) = string.split_once('"').context("a string has no end")?;
            ensure!(!string.contains('\\'), "escapes are not known here");
            tokens.push(TemplateToken::Literal(string.into()));
            rest = behind.trim_start();
            continue;
        }
        if let Some(group) = rest.strip_prefix('(') {
            let (group, behind) = group.split_at(group_end(group)?);
            tokens.push(TemplateToken::Group(self::tokens(group)?));
            rest = behind[1..].trim_start();
            continue;
        }
        let (word, behind) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = behind.trim_start();
        let known = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '|';
        ensure!(word.chars().all(known), "`{word}` is not known here");
        tokens.push(if word == "|" {
            TemplateToken::Pipe
        } else if let Some(field) = word.strip_prefix('.') {
            TemplateToken::Field(field)
        } else if let Ok(number) = word.parse::<u32>() {
            TemplateToken::Literal(number.into())
        } else {
            TemplateToken::Name(word)
        });
    }
    Ok(tokens)
}

/// The position of the parenthesis that closes the one that is open at the beginning.
fn group_end(text: &str) -> Result<usize> {
    let (mut depth, mut in_string) = (0, false);
    for (at, c) in text.char_indices() {
        match c {
            '"' => in_string = !in_string,
            '(' if !in_string => depth += 1,
            ')' if !in_string && depth == 0 => return Ok(at),
            ')' if !in_string => depth -= 1,
            _ => {}
        }
    }
    bail!("( without )")
}

/// `a b | c d`: each part's value is the last argument of the next.
fn pipeline(tokens: &[TemplateToken<'_>], scope: &TemplateScope<'_>) -> Result<Value> {
    let mut last = None;
    for part in tokens.split(|word| *word == TemplateToken::Pipe) {
        last = Some(command(part, last, scope)?);
    }
    last.context("nothing to write")
}

fn command(
    tokens: &[TemplateToken<'_>],
    piped: Option<Value>,
    scope: &TemplateScope<'_>,
) -> Result<Value> {
    let (first, tokens) = tokens.split_first().context("an empty part")?;
    let arguments = tokens.iter().map(|word| match word {
        TemplateToken::Field(path) => Ok(field(path, scope.data)),
        TemplateToken::Literal(value) => Ok(value.clone()),
        TemplateToken::Group(tokens) => pipeline(tokens, scope),
        TemplateToken::Name(_) | TemplateToken::Pipe => bail!("{word:?} is not an argument"),
    });
    let mut arguments = arguments.collect::<Result<Vec<Value>>>()?;
    arguments.extend(piped);
    match first {
        TemplateToken::Name("include") => match arguments.as_slice() {
            [Value::String(name), data] => {
                let text = scope.defined.get(name).context("it is not defined")?;
                Ok(render(text, &TemplateScope { data, ..*scope })?.into())
            }
            _ => bail!("include takes a name and what its dot is"),
        },
        TemplateToken::Name("lookup") => match arguments.as_slice() {
            [_, Value::String(kind), _, Value::String(name)] => {
                let there = scope.installed.contains(&(kind, name));
                Ok(if there {
                    json!({"kind": kind})
                } else {
                    json!({})
                })
            }
            _ => bail!("lookup takes a version, a kind, a namespace and a name"),
        },
        TemplateToken::Name("dict") => dict(&arguments),
        TemplateToken::Name(name) => call(name, &arguments),
        TemplateToken::Field("Files.Get") => match arguments.as_slice() {
            [Value::String(path)] => Ok((scope.file)(path)?.into()),
            _ => bail!("Files.Get takes one path"),
        },
        TemplateToken::Field(path) if arguments.is_empty() => Ok(field(path, scope.data)),
        TemplateToken::Literal(value) if arguments.is_empty() => Ok(value.clone()),
        other => bail!("{other:?} takes no arguments"),
    }
}

fn dict(arguments: &[Value]) -> Result<Value> {
    let pairs = arguments.chunks(2).map(|pair| match pair {
        [Value::String(key), value] => Ok((key.clone(), value.clone())),
        _ => bail!("dict takes keys, each with its value"),
    });
    pairs.collect::<Result<_>>().map(Value::Object)
}

/// A missing value is null; an empty path is the whole value.
fn field(path: &str, data: &Value) -> Value {
    if path.is_empty() {
        return data.clone();
    }
    let found = path.split('.').try_fold(data, |value, key| value.get(key));
    found.cloned().unwrap_or(Value::Null)
}

fn call(name: &str, arguments: &[Value]) -> Result<Value> {
    Ok(match (name, arguments) {
        ("toYaml", [value]) => yaml::text(value).into(),
        ("quote", [value]) => Value::from(printed(value)?).to_string().into(),
        ("default", [other, value]) => if is_true(value) { value } else { other }.clone(),
        ("indent", [width, value]) => indented(width, value)?.into(),
        ("nindent", [width, value]) => format!("\n{}", indented(width, value)?).into(),
        ("replace", [old, new, text]) => replaced(old, new, text)?.into(),
        ("not", [value]) => (!is_true(value)).into(),
        ("and", [first, second]) => if is_true(first) { second } else { first }.clone(),
        _ => bail!(
            "{name} with {} arguments is not known here",
            arguments.len()
        ),
    })
}

fn replaced(old: &Value, new: &Value, text: &Value) -> Result<String> {
    let all = [old, new, text].map(Value::as_str);
    let [Some(old), Some(new), Some(text)] = all else {
        bail!("replace takes three texts");
    };
    Ok(text.replace(old, new))
}

fn indented(width: &Value, text: &Value) -> Result<String> {
    let width = width.as_u64().context("how wide?")?;
    let blank = " ".repeat(usize::try_from(width)?);
    let text = text.as_str().context("only text can be indented")?;
    Ok(format!(
        "{blank}{}",
        text.replace('\n', &format!("\n{blank}"))
    ))
}

/// Go's: what is empty is false.
fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
    }
}

/// The text that Go would print. Maps are not supported.
fn printed(value: &Value) -> Result<String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Bool(_) | Value::Number(_) => Ok(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => bail!("{value} cannot be written"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(template: &str) -> Result<String> {
        let data = json!({"Values": {"a": "x", "up": true, "down": false, "list": ["b"]}});
        let defined = definitions(
            "{{- define \"d\" }}\n{{- if .x }}<{{ .x }}>{{ end }}!\n{{- end }}\n\n\
             {{- define \"e\" -}}\n  {{ include \"d\" .y }}\n{{ end }}",
        )?;
        let scope = TemplateScope {
            data: &data,
            file: &|name| Ok(format!("file {name}\nend")),
            defined: &defined,
            installed: &[("Pod", "a")],
        };
        render(template, &scope)
    }

    /// The expected results are those of Helm 4; for `not`, `include`, `dict` and `lookup`
    /// they are those of Helm's documentation.
    #[test]
    fn supported_templates_render_like_helm() {
        let rows = [
            ("a: {{ .Values.a }}", "a: x"),
            ("a: {{ .Values.a | quote }}", "a: \"x\""),
            ("a: {{ .Values.none | default \"d\" }}", "a: d"),
            (
                "a:\n  {{- toYaml .Values.list | nindent 2 }}\n",
                "a:\n  - b\n",
            ),
            ("{{ .Files.Get \"f\" | indent 2 }}", "  file f\n  end"),
            (
                "{{ .Files.Get \"f\" | replace \"end\" .Values.a }}",
                "file f\nx",
            ),
            (
                "{{- if .Values.up }}\nb\n{{- else }}\nc\n{{- end }}\n",
                "\nb\n",
            ),
            ("{{ if .Values.down }}b{{ else }}c{{ end }}", "c"),
            (
                "{{ if .Values.down }}{{ if .Values.up }}b{{ else }}c{{ end }}{{ end }}d",
                "d",
            ),
            ("{{ if and .Values.up .Values.down }}b{{ end }}.", "."),
            (
                "{{ if and .Values.up (not .Values.down) }}b{{ end }}.",
                "b.",
            ),
            ("{{ include \"d\" . }}", "!"),
            (
                "{{ include \"e\" (dict \"y\" (dict \"x\" \"(a)\")) }}.",
                "<(a)>!\n.",
            ),
            (
                "{{ if lookup \"v1\" \"Pod\" \"n\" \"a\" }}b{{ end }}.",
                "b.",
            ),
            ("{{ if lookup \"v1\" \"Pod\" \"n\" \"b\" }}b{{ end }}.", "."),
        ];
        for (template, expected) in rows {
            assert_eq!(rendered(template).unwrap(), expected, "{template}");
        }
    }

    #[test]
    fn unsupported_templates_are_refused() {
        let rows = [
            "{{ range .Values.list }}{{ end }}",
            "{{ include \"a\" . }}",
            "{{ $x := 1 }}",
            "{{ .Values.none }}",
            "{{ .Values.list }}",
            "{{ (quote .Values.a) }}",
            "{{ if (not .Values.up }}{{ end }}",
            "{{ dict \"a\" }}",
            "{{ define \"f\" }}{{ end }}",
            "{{/* a comment */}}",
            "{{ if .Values.up }}",
            "{{ end }}",
            "{{ else }}",
            "{{ .Values.a",
            "{{ \"a\\\"\" }}",
            "{{ if .Values.up }}{{ else if .Values.down }}{{ end }}",
        ];
        for template in rows {
            assert!(
                rendered(template).is_err(),
                "{template}: {:?}",
                rendered(template)
            );
        }
    }
}
