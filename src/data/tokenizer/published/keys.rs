//! The keys of tokenizer_config.json: those that change token ids and are obeyed, those that never change
//! ids, and those that would change ids and are refused.
//!
//! Collected from the arguments of all tokenizers of transformers 4.57 and 5.24 and from published folders.

use serde_json::Value;

use base::error::Problem;

/// Keys that are read, in addition to keys that end in `_token` and name a special token.
const OBEYED: [&str; 20] = [
    "add_prefix_space",
    "added_tokens_decoder",
    "additional_special_tokens",
    "auto_map",
    "do_lower_case",
    "extra_special_tokens",
    "keep_accents",
    "max_len",
    "model_input_names",
    "model_max_length",
    "model_specific_special_tokens",
    "split_by_punct",
    "split_special_tokens",
    "strip_accents",
    "tokenize_chinese_chars",
    "tokenizer_class",
    "trim_offsets",
    "truncation_side",
    "unk_id",
    "fast_tokenizer_files",
];

/// Keys that replace a part of a file: refused if they have a value.
const REFUSED: [&str; 11] = [
    "_json_padding",
    "_json_truncation",
    "_spm_precompiled_charsmap",
    "gguf_file",
    "init_inputs",
    "merges",
    "post_processor",
    "tokenizer_object",
    "tokenizer_padding",
    "tokenizer_truncation",
    "vocab",
];

/// Keys that change no token id of the supported classes.
const IRRELEVANT: [&str; 6] = [ORIGIN, CALLS, DECODING, OLDER, OTHERS, SAVED];

/// Keys about the origin of a tokenizer.
const ORIGIN: &str = "\
    __slow_tokenizer _commit_hash _from_auto _from_pipeline _name_or_path architectures backend cache_dir \
    code_revision commit_message config device_map dtype emoji_file entity_vocab_file files_loaded \
    force_download from_slow full_tokenizer_file is_local local_files_only merges_file mistral_format \
    model_type monolingual_vocab_file name_or_path normalizer_file processor_class proxies repo_id \
    resume_download revision save_jinja_files source_spm special_tokens_map_file spm_file src_vocab_file \
    subfolder target_spm target_vocab_file tgt_vocab_file token tokenizer_file tokenizer_path tokenizer_type \
    added_tokens_file chat_template_file tokenizer_config_file torch_dtype transformers_version \
    trust_remote_code use_auth_token use_fast verbose version vocab_file word_pronunciation_file \
    word_shape_file";

/// Keys about padding, and defaults that a call can override.
const CALLS: &str = "\
    max_length max_seq_length max_target_length n_sequences only_label_first_subword pad_to_max_length \
    pad_to_multiple_of pad_token_box pad_token_id pad_token_label pad_token_type_id padding padding_side \
    prepend_batch_axis return_attention_mask return_tensors return_token_type_ids return_special_tokens_mask \
    return_offsets_mapping return_overflowing_tokens return_length add_special_tokens stride truncation \
    truncation_strategy is_split_into_words max_position_embeddings vocab_size tensor_type bos_token_id \
    cls_token_id eos_token_id mask_token_id sep_token_id unk_token_id";

/// Keys about decoding and chats.
const DECODING: &str = "\
    chat_control_tokens chat_template clean_up_tokenization_spaces \
    clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output decode_with_prefix_space \
    default_chat_template errors grounded_generation_template response_schema response_template \
    sanitize_control_tokens skip_special_tokens spaces_between_special_tokens tool_use_template \
    use_default_system_prompt mode";

/// Keys that only classes of older releases read: transformers 5 returns the same ids whatever their values.
const OLDER: &str = "\
    add_bos_token add_eos_token clean_text do_basic_tokenize do_split_on_punc fix_mistral_regex legacy \
    max_input_chars_per_word never_split remove_space sp_model_kwargs use_fast_bert_tokenizer vocab_list \
    vocab_type wordpieces_prefix do_wordpiece_only basic_tokenizer wordpiece_tokenizer do_pretokenize \
    pretokenizer_type lowercase do_lower special_tokens special_tokens_attr tokenizer model encoding data";

/// Keys that only unsupported classes read.
const OTHERS: &str = "\
    add_blank bod_id byte_fallback cell_trim_length cls_token_box default_velocity do_clean_text \
    do_lowercase do_lowercase_and_remove_accent do_normalize do_phonemize do_subword_tokenize do_upper_case \
    do_word_tokenize emoji entity_token_1 entity_token_2 entity_vocab extra_ids generator id2lang \
    ids_to_tokens is_uroman jumanpp_kwargs lang2id lang_codes langs language language_codes legacy_behaviour \
    mask_token_sent max_column_id max_depth max_entity_length max_mention_length max_question_length \
    max_row_id max_width mecab_dic mecab_kwargs mecab_option min_question_length normalization normalize \
    normalize_text num_bars num_madeup_words offset pad_width phonemize phonemizer_backend phonemizer_lang \
    predict_timestamps preserve_case question_encoder reduce_len replace_word_delimiter_char rewriting_rules \
    sep_token_box separate_vocabs should_strip_spaces source_lang special_tokens_pattern src_lang \
    strip_column_names strip_handles subword_tokenizer_type sudachi_config_path sudachi_dict_type \
    sudachi_kwargs sudachi_projection sudachi_resource_dir sudachi_split_mode suffix suffix_first tags_dict \
    target_lang task tgt_lang token_type_ids_include_special_tokens token_type_ids_pattern trim_whitespace \
    update_answer_coordinates use_source_tokenizer word_tokenizer_type image_seq_length image_size \
    image_mean image_std patch_size num_image_tokens vision_feature_select_strategy text_pair \
    text_pair_target text_target pair";

/// Attributes saved by old releases, and keys of models, trainings and inputs other than text.
const SAVED: &str = "\
    all_special_tokens attention_mask base_model deprecation_warnings id2label init_kwargs is_fast label2id \
    library_name license max_len_sentences_pair max_len_single_sentence max_model_input_sizes num_labels \
    padding_strategy pretrained_init_configuration pretrained_vocab_files_map slow_tokenizer_class \
    special_tokens_map tags task_specific_params tokenizer_version truncation_direction unsloth_version \
    vocab_files_names mecab_path unk_index subword_fallback num_mel_bins sampling_rate feature_size \
    feature_extractor_type";

/// The treatment of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Treatment {
    /// Read if the class reads it.
    Obeyed,
    /// Changes no id.
    Irrelevant,
    /// Would change ids, and is not supported.
    Refused,
}

fn irrelevant() -> impl Iterator<Item = &'static str> {
    IRRELEVANT.into_iter().flat_map(|keys| keys.split(' '))
}

/// The treatment of a key with this `value`; `None` if the key is not known.
pub(super) fn treatment(key: &str, value: &Value) -> Option<Treatment> {
    let names_token = key.ends_with("_token") && (value.is_string() || value.is_object() || value.is_null());
    if OBEYED.contains(&key) || names_token {
        return Some(Treatment::Obeyed);
    }
    if REFUSED.contains(&key) {
        let says_nothing = value.is_null() || value.as_array().is_some_and(Vec::is_empty);
        return Some(if says_nothing { Treatment::Irrelevant } else { Treatment::Refused });
    }
    irrelevant().any(|known| known == key).then_some(Treatment::Irrelevant)
}

/// Returns an error for keys that would change ids and are not supported; otherwise a note that lists the
/// unknown keys, if any.
pub(super) fn check(settings: &Value, place: &str) -> Result<Option<String>, Problem> {
    let mut unknown = Vec::new();
    for (key, value) in settings.as_object().into_iter().flatten() {
        match treatment(key, value) {
            Some(Treatment::Obeyed | Treatment::Irrelevant) => {}
            Some(Treatment::Refused) => {
                return Err(
                    Problem::new(format!("`{key}` of tokenizer_config.json is not supported")).at(place)
                );
            }
            None => unknown.push(format!("`{key}`")),
        }
    }
    let files = &settings["fast_tokenizer_files"];
    if !files.is_null()
        && !files.as_array().is_some_and(|files| files.iter().all(|file| file == "tokenizer.json"))
    {
        let message = format!(
            "`fast_tokenizer_files` of tokenizer_config.json names {files}, only `tokenizer.json` is read"
        );
        return Err(Problem::new(message).at(place));
    }
    let names = unknown.join(", ");
    let note = format!("tokenizer_config.json: not known and ignored: {names}");
    Ok((!unknown.is_empty()).then_some(note))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    #[test]
    fn three_hundred_keys_are_known_once_each() {
        let all: Vec<&str> = OBEYED.into_iter().chain(REFUSED).chain(irrelevant()).collect();
        let set: BTreeSet<&str> = all.iter().copied().collect();
        assert_eq!(set.len(), all.len(), "a key stands twice");
        let of_tokens = [
            "bos", "eos", "unk", "sep", "pad", "cls", "mask", "eot", "image", "prefix", "suffix", "middle",
            "fill",
        ];
        for role in of_tokens {
            assert_eq!(treatment(&format!("{role}_token"), &json!("<x>")), Some(Treatment::Obeyed));
        }
        assert!(all.len() + of_tokens.len() >= 300, "{}", all.len());
    }

    #[test]
    fn keys_that_put_other_parts_in_place_are_refused_by_name() {
        for (settings, key) in [
            (json!({"vocab": {"a": 0}}), "`vocab`"),
            (json!({"fast_tokenizer_files": ["tokenizer.4.0.0.json"]}), "`fast_tokenizer_files`"),
        ] {
            let refused = check(&settings, "here").unwrap_err().to_string();
            assert!(refused.contains(key), "{refused}");
        }
        assert_eq!(
            check(&json!({"init_inputs": [], "vocab": null, "do_lower_case": true}), "here").unwrap(),
            None
        );
        let note = check(&json!({"my_key": 1, "pad_token": "x", "other": 2}), "here").unwrap().unwrap();
        assert!(note.contains("`my_key`, `other`") && !note.contains("pad_token"), "{note}");
    }
}
