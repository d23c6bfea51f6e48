//! URI templates of proxies (RFC 6570, as RFC 9298, section 2, restricts them), with `target_host` and `target_port`.

use crate::percent_encoding;
use crate::target::{NoTarget, Target};
use core::fmt;
use core::str::FromStr;
use thiserror::Error;

/// The default of a proxy of this name.
const DEFAULT_PATH: &str = "/.well-known/masque/tcp/{target_host}/{target_port}/";
const SCHEME: &str = "https://";

/// A template, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    text: String,
    /// The proxy: a host, and a port if it is not 443.
    authority: String,
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(String),
    Host,
    Port,
}

/// A text that is no template.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "`{text}` is not a proxy's template: {reason}; expected one such as `{SCHEME}proxy.example{DEFAULT_PATH}`"
)]
pub struct TemplateError {
    text: String,
    reason: &'static str,
}

impl Template {
    /// The default template of the proxy at `authority`.
    ///
    /// # Errors
    /// [`TemplateError`].
    pub fn of_authority(authority: &str) -> Result<Self, TemplateError> {
        format!("{SCHEME}{authority}{DEFAULT_PATH}").parse()
    }

    /// The template of the same proxy for UDP (RFC 9298), where this is one whose path says `/masque/tcp/`, as the default does.
    pub fn for_udp(&self) -> Option<Self> {
        let text = self.text.replacen("/masque/tcp/", "/masque/udp/", 1);
        (text != self.text).then(|| text.parse().ok())?
    }

    /// The proxy, as `:authority` has it.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// The path of the request for `target`.
    pub fn expand(&self, target: &Target) -> String {
        let mut path = String::with_capacity(self.text.len());
        for part in &self.parts {
            match part {
                Part::Literal(text) => path.push_str(text),
                Part::Host => percent_encoding::encode(&target.host.to_string(), &mut path),
                Part::Port => percent_encoding::encode(&target.port.to_string(), &mut path),
            }
        }
        path
    }

    /// The target in the path of a request; `None`: the path is not of this template.
    ///
    /// # Errors
    /// [`NoTarget`]: it is, and what stands there is no target.
    pub fn find(&self, path: &str) -> Result<Option<Target>, NoTarget> {
        let (mut host, mut port) = ("", "");
        let mut rest = path;
        for part in &self.parts {
            let value = match part {
                Part::Literal(text) => {
                    let Some(after) = rest.strip_prefix(text.as_str()) else {
                        return Ok(None);
                    };
                    rest = after;
                    continue;
                }
                Part::Host => &mut host,
                Part::Port => &mut port,
            };
            let ends = |byte| !percent_encoding::is_unreserved(byte) && byte != b'%';
            let length = rest.bytes().position(ends).unwrap_or(rest.len());
            (*value, rest) = rest.split_at(length);
        }
        if !rest.is_empty() {
            return Ok(None);
        }
        let decoded =
            |text: &str| percent_encoding::decode(text).ok_or(NoTarget::Host(text.to_owned()));
        Target::of(&decoded(host)?, &decoded(port)?).map(Some)
    }
}

impl FromStr for Template {
    type Err = TemplateError;

    fn from_str(text: &str) -> Result<Self, TemplateError> {
        let refused = |reason| TemplateError {
            text: text.to_owned(),
            reason,
        };
        let rest =
            { text.strip_prefix(SCHEME) }.ok_or(refused("it does not begin with https://"))?;
        let begin = rest.find('/').ok_or(refused("it has no path"))?;
        let (authority, path) = rest.split_at(begin);
        if authority.is_empty() || authority.contains(['{', '}', '@', '?', '#']) {
            return Err(refused(
                "a proxy's name must stand before the path, as it is",
            ));
        }
        let visible = |byte: u8| (0x21..0x7f).contains(&byte);
        if !text.bytes().all(visible) {
            return Err(refused("it has characters that must be percent-encoded"));
        }
        let parts = parts(path).map_err(refused)?;
        let count = |wanted: &Part| parts.iter().filter(|part| *part == wanted).count();
        if count(&Part::Host) != 1 || count(&Part::Port) != 1 {
            return Err(refused(
                "target_host and target_port must each stand in it once",
            ));
        }
        let ambiguous = parts.windows(2).any(|pair| match pair {
            [Part::Literal(_), _] => false,
            [_, Part::Literal(text)] => text
                .bytes()
                .next()
                .is_none_or(percent_encoding::is_unreserved),
            _ => true,
        });
        if ambiguous {
            return Err(refused(
                "it does not show where a value ends: put a `/` behind it",
            ));
        }
        Ok(Self {
            text: text.to_owned(),
            authority: authority.to_owned(),
            parts,
        })
    }
}

/// Takes the path of a template apart.
fn parts(path: &str) -> Result<Vec<Part>, &'static str> {
    let mut parts = Vec::new();
    let mut literal = String::new();
    let mut rest = path;
    while let Some((before, after)) = rest.split_once('{') {
        let (expression, after) = after.split_once('}').ok_or("a `{` has no `}`")?;
        if before.contains('}') {
            return Err("a `}` has no `{`");
        }
        literal.push_str(before);
        rest = after;
        let form = expression
            .chars()
            .next()
            .filter(|first| "?&".contains(*first));
        for (nth, name) in expression
            .trim_start_matches(['?', '&'])
            .split(',')
            .enumerate()
        {
            match (form, nth) {
                // The only list that RFC 9298 allows.
                (Some(first), 0) => literal.push(first),
                (Some(_), _) => literal.push('&'),
                (None, 0) => {}
                (None, _) => return Err("a list must begin with `?` or `&`"),
            }
            if form.is_some() {
                literal.push_str(name);
                literal.push('=');
            }
            if !literal.is_empty() {
                parts.push(Part::Literal(core::mem::take(&mut literal)));
            }
            parts.push(match name {
                "target_host" => Part::Host,
                "target_port" => Part::Port,
                _ => return Err("it has a variable besides target_host and target_port"),
            });
        }
    }
    if rest.contains('}') {
        return Err("a `}` has no `{`");
    }
    literal.push_str(rest);
    if literal.contains('#')
        || parts
            .iter()
            .any(|part| matches!(part, Part::Literal(text) if text.contains('#')))
    {
        return Err("it has a fragment");
    }
    if !literal.is_empty() {
        parts.push(Part::Literal(literal));
    }
    Ok(parts)
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn target(text: &str) -> Target {
        text.parse().unwrap()
    }

    #[test]
    fn the_default_template_and_its_ipv6_targets() {
        let template = Template::of_authority("proxy.example:4433").unwrap();
        assert_eq!(template.authority(), "proxy.example:4433");
        let path = template.expand(&target("[2001:db8::1]:443"));
        assert_eq!(path, "/.well-known/masque/tcp/2001%3Adb8%3A%3A1/443/");
        assert_eq!(template.find(&path), Ok(Some(target("[2001:db8::1]:443"))));
    }

    #[test]
    fn variables_may_stand_in_the_query() {
        for text in [
            "https://p/x{?target_host,target_port}",
            "https://p/x?v=1{&target_port,target_host}",
            "https://p/x?h={target_host}&p={target_port}",
        ] {
            let template: Template = text.parse().unwrap();
            let path = template.expand(&target("a.example:8080"));
            assert_eq!(
                template.find(&path),
                Ok(Some(target("a.example:8080"))),
                "{path}"
            );
        }
    }

    #[test]
    fn other_paths_are_not_of_the_template_and_bad_targets_are_told() {
        let template = Template::of_authority("p").unwrap();
        for path in [
            "/",
            "",
            "/.well-known/masque/tcp/h/1",
            "/.well-known/masque/tcp/h/1/x",
            "/.well-known/masque/udp/h/1/",
        ] {
            assert_eq!(template.find(path), Ok(None), "{path}");
        }
        for path in [
            "h/0/", "h/x/", "/1/", "a%00b/1/", "h%/1/", "%ff/1/", "a%2Fb/1/",
        ] {
            let path = format!("/.well-known/masque/tcp/{path}");
            assert!(template.find(&path).is_err(), "{path}");
        }
    }

    #[test]
    fn what_is_no_template_is_refused_with_the_reason() {
        for (text, reason) in [
            ("http://p/{target_host}/{target_port}/", "https://"),
            ("https://p", "no path"),
            ("https:///{target_host}/{target_port}/", "name"),
            ("https://u@p/{target_host}/{target_port}/", "name"),
            ("https://p/{target_host}/", "once"),
            (
                "https://p/{target_host}/{target_host}/{target_port}/",
                "once",
            ),
            ("https://p/{+target_host}/{target_port}/", "variable"),
            ("https://p/{/target_host,target_port}", "variable"),
            ("https://p/{target_host,target_port}", "list"),
            ("https://p/{target_host}{target_port}/", "ends"),
            ("https://p/{target_host}x{target_port}/", "ends"),
            ("https://p/{target_host/{target_port}/", "variable"),
            ("https://p/target_host}/{target_port}/", "`}`"),
            ("https://p/{target_host}/{target_port", "`{`"),
            ("https://p/{target_host}/{target_port}/#x", "fragment"),
            ("https://p/ö/{target_host}/{target_port}/", "percent"),
        ] {
            let error = text.parse::<Template>().unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC*", path in "\\PC*") {
            let _ = text.parse::<Template>();
            let _ = format!("https://p/{text}").parse::<Template>();
            let _ = Template::of_authority("p").unwrap().find(&path);
        }
    }
}
