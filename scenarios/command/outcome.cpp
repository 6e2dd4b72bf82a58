#include "scenarios/command/outcome.h"

#include <nlohmann/json.hpp>

#include "contract/core/check.h"
#include "contract/core/line.h"

namespace kvfence {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ReachCount, name, count, goal)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Refusal, why, count)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Divergence, step, oracle, field, expected, actual, message)
// The other members of a report have no JSON form.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Report, target, source, expected_name, actual_name, seed,
                                   episode, commands, seconds, disagreements,
                                   commands_before_shrinking, reproduce, reach, compared,
                                   unreported, unjudged, corrections, numbers)

std::string to_bytes(const Outcome& outcome) {
  const Report& report = outcome.report;
  nlohmann::json object = {
      {"exit_code", outcome.exit_code},       {"message", outcome.message},
      {"case_name", outcome.case_name},       {"report", report},
      {"oracles", to_text(report.oracles)},   {"scenario", print(report.scenario)},
      {"refusals", report.refusals.reasons()}};
  if (report.divergence) object["divergence"] = *report.divergence;
  // Not text, since texts may have bytes that are not UTF-8.
  std::string bytes;
  nlohmann::json::to_cbor(object, bytes);
  return bytes;
}

Outcome outcome_from_bytes(const std::string& bytes) {
  const nlohmann::json object = nlohmann::json::from_cbor(bytes);
  Outcome outcome;
  object.at("exit_code").get_to(outcome.exit_code);
  object.at("message").get_to(outcome.message);
  object.at("case_name").get_to(outcome.case_name);
  Report& report = outcome.report;
  object.at("report").get_to(report);
  const Parsed<Oracles> oracles = oracles_of(object.at("oracles").get<std::string>());
  KVFENCE_CHECK(oracles, "oracles that were printed can be read");
  report.oracles = *oracles;
  for (const auto& each : object.at("refusals").get<std::vector<Refusal>>()) {
    report.refusals.add(each.why, each.count);
  }
  Parsed<Document> scenario = parse_document(object.at("scenario").get<std::string>());
  KVFENCE_CHECK(scenario, "a document that was printed can be read");
  report.scenario = std::move(*scenario);
  const auto divergence = object.find("divergence");
  if (divergence != object.end()) report.divergence = divergence->get<Divergence>();
  return outcome;
}

}  // namespace kvfence
