#include "properties/core/observation_digest.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include "contract/core/digest.h"
#include "properties/core/difference.h"

namespace kvfence {
namespace {

/// Characters of each observation in a report.
constexpr std::size_t kShownMax = 2'000;

/// The command that reproduces the texts, which the recording does not hold.
std::string record_line(const Scenario& scenario) {
  std::string line = "kvfence record " + scenario.file;
  if (scenario.episode) line += " --episode " + std::to_string(*scenario.episode);
  line += " --out full.kvs";
  const std::string& recorder = scenario.digests->recorder;
  return recorder.empty() ? line : line + " " + recorder;
}

}  // namespace

std::vector<Field> recorded_fields(const Observation& observation,
                                   const std::vector<std::string>& members) {
  std::vector<Field> recorded;
  std::vector<Field> fields = fields_of(observation.declared());
  for (const std::string& member : members) {
    const auto found =
        std::ranges::find_if(fields, [&](const Field& field) { return field.key == member; });
    if (found != fields.end()) recorded.push_back(std::move(*found));
  }
  return recorded;
}

void symbolize(std::vector<Field>& fields, const World& world) {
  const auto symbol_of = [&](std::string_view bytes) { return world.symbol_of(bytes); };
  for (Field& field : fields) symbolize(field.value, symbol_of);
}

void ObservationDigest::add(const Observation& observation) {
  seen_.push_back(recorded_fields(observation, members_));
  std::string text = digest_;
  for (const Field& field : seen_.back()) {
    print_to(text, field);
    text += ' ';
  }
  const auto hash = xxh3_128(std::as_bytes(std::span(text)));
  digest_.assign(hash.begin(), hash.begin() + Digests::kBytes);
}

Bytes ObservationDigest::take() {
  seen_.clear();
  return {digest_};
}

std::optional<Divergence> ObservationDigest::check(const Scenario& scenario, std::size_t step,
                                                   const World& world) {
  const auto& expectation = scenario.steps[step].expectation;
  if (!expectation) return std::nullopt;
  std::vector<std::vector<Field>> all = std::move(seen_);
  const Value digest = Value(Value::Variant(take()));
  const Value& recorded = expectation->front().value;
  if (recorded == digest) return std::nullopt;
  Divergence divergence{.step = step,
                        .oracle = "expectation",
                        .field = Digests::kField,
                        .expected = print(recorded),
                        .actual = print(digest) + ", of"};
  std::size_t number = step + 1 - all.size();
  for (std::vector<Field>& fields : all) {
    symbolize(fields, world);
    Line line;
    line.expectation = std::move(fields);
    std::string text = print(line);
    if (text.size() > kShownMax) text = text.substr(0, kShownMax) + " ...";
    divergence.actual += "\n    command " + std::to_string(++number) + ": " + text;
  }
  divergence.message =
      "the observations must be the recorded ones, of which the file has only a digest; this "
      "command reproduces their texts: " +
      record_line(scenario);
  return divergence;
}

}  // namespace kvfence
