#include "properties/draws/factor_survey.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "contract/core/check.h"
#include "contract/core/lists.h"
#include "properties/core/campaign.h"
#include "properties/draws/factors.h"

namespace kvfence {
namespace {

Value of(Value::Variant data) { return Value(std::move(data)); }

/// The words of "one of a, b or c".
std::vector<std::string> words_in(std::string text) {
  std::ranges::replace(text, ',', ' ');
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

/// Copies of the value with `by` at a place, one for every way to do it. The place is the rest of a
/// factor, such as `.sliding.window` in a list of records.
std::vector<Value> replaced(const Value& value, std::string_view place, const Value& by) {
  if (place.empty()) return {by};
  std::vector<Value> results;
  const auto* list = value.get_if<Value::List>();
  for (std::size_t at = 0; list && at < list->size(); ++at) {
    const auto* record = (*list)[at].get_if<Record>();
    const std::string kind = record ? "." + record->verb + "." : "";
    if (!record || !place.starts_with(kind)) continue;
    const std::string_view rest = place.substr(kind.size());
    const std::string key(rest.substr(0, rest.find('.')));
    const Field* field = find_field(record->fields, key);
    const Value before = field ? field->value : Value();
    for (Value& member : replaced(before, rest.substr(key.size()), by)) {
      Value::List elements = *list;
      elements[at] = of(with_field(*record, key, std::move(member)));
      results.push_back(of(std::move(elements)));
    }
  }
  return results;
}

class Surveyor {
 public:
  Surveyor(const Checks& checks, const FactorSurveyOptions& options)
      : checks_(checks), options_(options), rows_used_(checks.never_together.size()) {}

  FactorSurvey run() {
    draw();
    find_missing();
    find_never_drawn();
    for (std::size_t row = 0; row < rows_used_.size(); ++row) {
      if (!rows_used_[row]) survey_.idle_rows.push_back(checks_.never_together[row]);
    }
    return std::move(survey_);
  }

 private:
  /// Configurations kept per value, in which other values are tried.
  static constexpr std::size_t kSamplesMax = 128;
  static constexpr std::size_t kMeetingMax = 5;
  /// A pair is missing if independent values would meet so often. Some meet only in mixtures
  /// (draws/mixed_draws.h), some 16 times more rarely.
  static constexpr std::uint64_t kExpectedMin = 128;

  struct Known {
    std::string factor;
    std::string value;
    std::size_t member;  ///< of the configuration
    std::uint64_t count = 0;
    std::vector<Config> samples{};

    std::string name() const { return factor + "=" + value; }
    bool may_differ_in_list() const {
      return factor.find('.') != std::string::npos && !factor.ends_with(".length");
    }
  };

  void draw() {
    std::vector<std::size_t> found;
    for (std::uint64_t number = 0; number < options_.num_configs; ++number) {
      Choices choices = episode_choices(options_.seed, number);
      const Parsed<Setup> setup = draw_setup(checks_, choices);
      KVFENCE_CHECK(setup, setup ? "" : setup.error().to_text());
      const DeclaredObject config = setup->config().declared();
      found.clear();
      for (std::size_t member = 0; member < config.size(); ++member) {
        const std::string& name = config.type().members[member].name;
        const Value value = config[member].value();
        learn_members(name, value, members_of_records_);
        for_each_factor(name, value, members_of_records_,
                        [&](const std::string& factor, const std::string& text) {
                          found.push_back(place_of(factor, text, member));
                        });
      }
      keep_each_once(found);
      for (auto at = found.begin(); at != found.end(); ++at) {
        Known& value = values_[*at];
        ++value.count;
        if (value.samples.size() < kSamplesMax) value.samples.push_back(setup->config());
        for (auto before = found.begin(); before != at; ++before) drawn_[*at][*before] = true;
      }
    }
    survey_.num_configs = options_.num_configs;
    for (const Known& known : values_) {
      survey_.values.push_back({known.factor, known.value, known.count});
    }
  }

  std::size_t place_of(const std::string& factor, const std::string& value, std::size_t member) {
    const auto [known, is_new] = places_.try_emplace(factor + "=" + value, values_.size());
    if (is_new) {
      drawn_.emplace_back(values_.size());
      values_.push_back({factor, value, member});
    }
    return known->second;
  }

  void find_missing() {
    for (std::size_t second = 0; second < values_.size(); ++second) {
      for (std::size_t first = 0; first < second; ++first) {
        const Known& a = values_[first];
        const Known& b = values_[second];
        if (a.factor == b.factor && !a.may_differ_in_list()) continue;
        if (drawn_[second][first]) {
          ++survey_.num_pairs_drawn;
          continue;
        }
        if (a.count * b.count < kExpectedMin * options_.num_configs) {
          ++survey_.num_pairs_rare;
          continue;
        }
        bool is_explained = false;
        auto example = config_with(a, b, is_explained);
        if (!example) example = config_with(b, a, is_explained);
        if (example) {
          survey_.holes.push_back({a.name(), b.name(), print(config_line(*example))});
        } else {
          ++(is_explained ? survey_.num_explained : survey_.num_pairs_refused);
        }
      }
    }
  }

  /// A drawn configuration with the one value, changed to have the other one, if the contract
  /// accepts it.
  std::optional<Config> config_with(const Known& kept, const Known& given, bool& is_explained) {
    for (const Config& config : first_of(kept.samples)) {
      for (const Config& giver : first_of(given.samples)) {
        const MemberRef member = config.declared()[given.member];
        for (const Value& mixed :
             mixtures(member.value(), giver.declared()[given.member].value())) {
          Config changed = config;
          std::string ignored;
          if (!changed.declared()[given.member].assign(mixed, ignored)) continue;
          const DeclaredObject members = changed.declared();
          if (!has_factor(members, kept.name()) || !has_factor(members, given.name())) continue;
          if (!checks_.target->prepare(changed, {}, {})) continue;
          if (!is_left_out(changed)) return changed;
          is_explained = true;
        }
      }
    }
    return std::nullopt;
  }

  static std::span<const Config> first_of(const std::vector<Config>& samples) {
    return std::span(samples).first(std::min(samples.size(), kMeetingMax));
  }

  /// Flags, absence and words that the contract accepts.
  void find_never_drawn() {
    std::map<std::string, Config> found;  // each with an example
    for (const Known& known : values_) {
      if (known.factor.ends_with(".length")) continue;
      for (const Config& sample : known.samples) try_values(known, sample, found);
    }
    for (auto& [value, example] : found) {
      if (is_left_out(example)) {
        ++survey_.num_explained;
      } else {
        survey_.holes.push_back({value, "", print(config_line(example))});
      }
    }
  }

  void try_values(const Known& known, const Config& sample,
                  std::map<std::string, Config>& found) const {
    for (const Value& value : {Value(), of(true), of(false)})
      try_value(known, sample, value, found);
    std::map<std::string, Config> free_text;
    const std::string expected = try_value(known, sample, of(std::string("?")), free_text);
    if (!free_text.empty()) return;
    for (std::string& word : words_in(expected)) {
      try_value(known, sample, of(std::move(word)), found);
    }
  }

  /// If the value was refused, what was expected instead.
  std::string try_value(const Known& known, const Config& sample, const Value& by,
                        std::map<std::string, Config>& found) const {
    std::string expected;
    const MemberRef member = sample.declared()[known.member];
    const std::string& name = member.declaration().name;
    const std::string_view place = std::string_view(known.factor).substr(name.size());
    for (const Value& value : replaced(member.value(), place, by)) {
      Config changed = sample;
      if (!changed.declared()[known.member].assign(value, expected)) continue;
      const Parsed<Setup> setup = checks_.target->prepare(std::move(changed), {}, {});
      if (!setup) {
        expected = setup.error().expected;
        continue;
      }
      const Config& config = setup->config();
      for_each_factor(name, config.declared()[known.member].value(), members_of_records_,
                      [&](const std::string& factor, const std::string& text) {
                        if (factor != known.factor || places_.contains(factor + "=" + text)) return;
                        found.try_emplace(factor + "=" + text, config);
                      });
    }
    return expected;
  }

  /// Whether rows leave that configuration out. A row is used if no other row leaves it out.
  bool is_left_out(const Config& config) {
    std::vector<std::size_t> found;
    for (std::size_t row = 0; row < rows_used_.size(); ++row) {
      if (has_both(config.declared(), checks_.never_together[row])) found.push_back(row);
    }
    if (found.size() == 1) rows_used_[found.front()] = true;
    return !found.empty();
  }

  const Checks& checks_;
  const FactorSurveyOptions options_;
  FactorSurvey survey_;
  std::vector<bool> rows_used_;  ///< that leave out something that no other row does
  MembersOfRecords members_of_records_;
  std::vector<Known> values_;
  std::unordered_map<std::string, std::size_t> places_;  ///< by factor=value
  std::vector<std::vector<bool>> drawn_;  ///< by place, and by each place before it: together
};

}  // namespace

FactorSurvey survey_factors(const Checks& checks, const FactorSurveyOptions& options) {
  return Surveyor(checks, options).run();
}

}  // namespace kvfence
