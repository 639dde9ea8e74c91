//! Special and added tokens in the files next to a tokenizer.json, in the order in which transformers 5 lets
//! one file override another.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};
use tokenizers::AddedToken;

use crate::tokenizer::load::NamedFile;
use crate::tokenizer::published::class::Class;
use crate::tokenizer::published::settings::{TOKENIZER_CONFIG, object};
use base::error::Problem;

/// The roles of special tokens, in the order in which transformers adds the tokens.
pub(in crate::tokenizer) const ROLES: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

const SPECIAL_TOKENS_MAP: &str = "special_tokens_map.json";
const ADDED_TOKENS: &str = "added_tokens.json";

/// A special token that was given by its name alone, or with its flags.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Named {
    token: AddedToken,
    has_flags: bool,
}

/// The special tokens and the tokens to add.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Tokens {
    /// Special tokens by role; the default of the class if no file names one.
    roles: Vec<(String, Named)>,
    /// Special tokens without a role.
    extra: Vec<Named>,
    /// Added tokens, sorted by their id in the files.
    added: Vec<(u32, AddedToken)>,
}

impl Tokens {
    /// Reads `settings`, the other files of the folder and the `added_tokens` of a tokenizer.json.
    pub(super) fn read(
        class: Class,
        settings: &Map<String, Value>,
        files: &[NamedFile],
        in_tokenizer: &[(u32, AddedToken)],
        place: &str,
    ) -> Result<Self, Problem> {
        let reader = Reader { place };
        let mut keys: Map<String, Value> = settings.clone();
        let mut added: Vec<(u32, AddedToken)> = Vec::new();
        if let Some(decoder) = settings.get("added_tokens_decoder") {
            added = reader.decoder(decoder)?;
        } else {
            for (key, mut value) in object(files, SPECIAL_TOKENS_MAP, place)? {
                if let Some(flags) = value.as_object_mut().filter(|_| key != "extra_special_tokens") {
                    flags.insert("special".to_string(), true.into());
                }
                keys.insert(key, value);
            }
        }
        let mut tokens = reader.special(class, &keys)?;
        if !settings.contains_key("added_tokens_decoder") {
            let special_names = tokens.special_names();
            for (content, id) in object(files, ADDED_TOKENS, place)? {
                let id = id.as_u64().and_then(|id| u32::try_from(id).ok()).ok_or_else(|| {
                    Problem::new(format!(
                        "its {ADDED_TOKENS} gives {content:?} the id {id}, a number is wanted"
                    ))
                    .at(place)
                })?;
                let is_special = special_names.contains(&content);
                added.push((id, AddedToken::from(content, is_special)));
            }
            added.extend(in_tokenizer.iter().cloned());
            // Of two tokens with one id, the later one is used.
            added.sort_by_key(|(id, _)| *id);
            added.reverse();
            added.dedup_by_key(|(id, _)| *id);
            added.reverse();
        }
        added.sort_by_key(|(id, _)| *id);
        for named in
            tokens.roles.iter_mut().filter(|(role, _)| keys.contains_key(role)).map(|(_, named)| named)
        {
            if let Some((_, token)) =
                added.iter().rev().find(|(_, token)| token.content == named.token.content)
            {
                *named = Named { token: token.clone(), has_flags: true };
            }
        }
        tokens.added = added;
        Ok(tokens)
    }

    /// The tokens that have a role of transformers, or are special without a role.
    fn special_names(&self) -> HashSet<String> {
        let of_roles = self.roles.iter().filter(|(role, _)| ROLES.contains(&role.as_str()));
        of_roles.map(|(_, named)| named).chain(&self.extra).map(|named| named.token.content.clone()).collect()
    }

    /// The token of a role, as named in the files.
    pub(super) fn role(&self, role: &str) -> Option<&str> {
        self.roles.iter().find(|(name, _)| name == role).map(|(_, named)| named.token.content.as_str())
    }

    /// Returns true if `content` is one of the added tokens of the files.
    pub(super) fn adds(&self, content: &str) -> bool {
        self.added.iter().any(|(_, token)| token.content == content)
    }

    /// The tokens to add to a tokenizer that already has the tokens `present`, in order.
    pub(super) fn to_add(&self, class: Class, present: &[(u32, AddedToken)]) -> Vec<AddedToken> {
        let of_content: HashMap<&str, &AddedToken> =
            present.iter().map(|(_, token)| (token.content.as_str(), token)).collect();
        let added = self.added.iter().map(|(_, token)| token);
        let mut tokens: Vec<AddedToken> =
            added.filter(|token| of_content.get(token.content.as_str()) != Some(token)).cloned().collect();
        let mut known: HashSet<String> = present.iter().map(|(_, token)| token.content.clone()).collect();
        known.extend(tokens.iter().map(|token| token.content.clone()));
        for token in &mut tokens {
            token.special |= self.roles.iter().any(|(_, named)| named.token.content == token.content);
        }
        let of_roles = self.roles.iter().map(|(role, named)| (role.as_str(), named));
        for (role, Named { token, has_flags }) in of_roles.chain(self.extra.iter().map(|named| ("", named))) {
            if !known.insert(token.content.clone()) {
                continue;
            }
            let mut token = token.clone();
            if !has_flags {
                token = AddedToken::from(token.content, true);
                token.lstrip = role == "mask_token" && class.mask_takes_space();
            }
            token.special |= !role.is_empty();
            tokens.push(token);
        }
        tokens
    }
}

struct Reader<'a> {
    place: &'a str,
}

impl Reader<'_> {
    fn wrong(&self, key: &str, value: &Value, wanted: &str) -> Problem {
        Problem::new(format!("`{key}` of {TOKENIZER_CONFIG} is {value}, {wanted} is wanted")).at(self.place)
    }

    /// `added_tokens_decoder`: tokens with their flags, by id.
    fn decoder(&self, decoder: &Value) -> Result<Vec<(u32, AddedToken)>, Problem> {
        let key = "added_tokens_decoder";
        let wanted = "a table of ids and tokens";
        let table = decoder.as_object().ok_or_else(|| self.wrong(key, decoder, wanted))?;
        let mut tokens = Vec::with_capacity(table.len());
        for (id, token) in table {
            let flags = token.is_object().then(|| added_token(token)).flatten();
            tokens.push((id.parse().ok(), flags));
        }
        let whole: Option<Vec<_>> = tokens.into_iter().map(|(id, token)| Some((id?, token?))).collect();
        whole.ok_or_else(|| self.wrong(key, decoder, wanted))
    }

    fn named(&self, key: &str, value: &Value) -> Result<Named, Problem> {
        let token = added_token(value).ok_or_else(|| self.wrong(key, value, "a token"))?;
        Ok(Named { token, has_flags: value.is_object() })
    }

    fn special(&self, class: Class, keys: &Map<String, Value>) -> Result<Tokens, Problem> {
        let mut tokens = Tokens::default();
        for role in ROLES {
            let own =
                class.special_tokens().iter().find(|(name, _)| *name == role).map(|(_, content)| *content);
            let named = match (keys.get(role), own) {
                (None, None) | (Some(Value::Null), _) => continue,
                (None, Some(content)) => self.named(role, &content.into())?,
                (Some(value), _) => self.named(role, value)?,
            };
            tokens.roles.push((role.to_string(), named));
        }
        let mut more: Vec<(&String, &Value)> = keys
            .iter()
            .filter(|(key, value)| {
                key.ends_with("_token")
                    && !ROLES.contains(&key.as_str())
                    && (value.is_string() || value.is_object())
            })
            .collect();
        let tables = [keys.get("extra_special_tokens"), keys.get("model_specific_special_tokens")];
        more.extend(tables.into_iter().flatten().filter_map(Value::as_object).flatten());
        for (key, value) in more {
            tokens.roles.push((key.clone(), self.named(key, value)?));
        }
        let lists = ["extra_special_tokens", "additional_special_tokens"];
        let mut given = lists.iter().filter_map(|key| keys.get(*key)?.as_array());
        match given.find(|list| !list.is_empty()) {
            Some(list) => {
                for value in list {
                    tokens.extra.push(self.named("additional_special_tokens", value)?);
                }
            }
            None => {
                for content in class.extra_tokens() {
                    tokens.extra.push(self.named("", &(*content).into())?);
                }
            }
        }
        Ok(tokens)
    }
}

/// A token given as `"<s>"` or as `{"content": "<s>", ...}`.
pub(in crate::tokenizer) fn added_token(value: &Value) -> Option<AddedToken> {
    let Some(flags) = value.as_object() else {
        return Some(AddedToken::from(value.as_str()?, true));
    };
    let special = flag(flags, "special", false)?;
    Some(AddedToken {
        content: flags.get("content")?.as_str()?.to_string(),
        single_word: flag(flags, "single_word", false)?,
        lstrip: flag(flags, "lstrip", false)?,
        rstrip: flag(flags, "rstrip", false)?,
        normalized: flag(flags, "normalized", !special)?,
        special,
    })
}

/// A flag of a token, `default` if it is missing or null; `None` for a value of another type.
fn flag(flags: &Map<String, Value>, key: &str, default: bool) -> Option<bool> {
    match flags.get(key) {
        None | Some(Value::Null) => Some(default),
        Some(value) => value.as_bool(),
    }
}

/// Reads an entry of `added_tokens`.
fn token_with_id(value: &Value) -> Option<(u32, AddedToken)> {
    Some((u32::try_from(value["id"].as_u64()?).ok()?, added_token(value)?))
}

/// The `added_tokens` of a tokenizer.json.
pub(in crate::tokenizer) fn added_tokens(
    list: &Value,
    place: &str,
) -> Result<Vec<(u32, AddedToken)>, Problem> {
    if list.is_null() {
        return Ok(Vec::new());
    }
    let tokens = list.as_array().and_then(|list| list.iter().map(token_with_id).collect());
    tokens.ok_or_else(|| Problem::new("its `added_tokens` are no list of tokens with ids").at(place))
}

/// `added_tokens` for a tokenizer.json.
pub(in crate::tokenizer) fn added_tokens_json(tokens: &[(u32, AddedToken)]) -> Value {
    let entries = tokens.iter().map(|(id, token)| {
        serde_json::json!({
            "id": id, "content": token.content, "single_word": token.single_word, "lstrip": token.lstrip,
            "rstrip": token.rstrip, "normalized": token.normalized, "special": token.special,
        })
    });
    entries.collect()
}
