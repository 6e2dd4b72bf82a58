#include "scenarios/command/outcome.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "contract/core/check.h"
#include "contract/core/line.h"

namespace kvfence {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ReachCount, name, count, goal)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Refusal, why, count)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Divergence, step, oracle, field, expected, actual, message)

std::string to_bytes(const Outcome& outcome) {
  const Report& report = outcome.report;
  nlohmann::json object = {{"exit_code", outcome.exit_code},
                           {"message", outcome.message},
                           {"case_name", outcome.case_name},
                           {"target", report.target},
                           {"source", report.source},
                           {"expected_name", report.expected_name},
                           {"actual_name", report.actual_name},
                           {"seed", report.seed},
                           {"episode", report.episode},
                           {"commands", report.commands},
                           {"seconds", report.seconds},
                           {"disagreements", report.disagreements},
                           {"scenario", print(report.scenario)},
                           {"before_shrinking", report.commands_before_shrinking},
                           {"reproduce", report.reproduce},
                           {"reach", report.reach},
                           {"numbers", report.numbers},
                           {"unreported", report.unreported},
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
  Report& report = outcome.report;
  object.at("exit_code").get_to(outcome.exit_code);
  object.at("message").get_to(outcome.message);
  object.at("case_name").get_to(outcome.case_name);
  object.at("target").get_to(report.target);
  object.at("source").get_to(report.source);
  object.at("expected_name").get_to(report.expected_name);
  object.at("actual_name").get_to(report.actual_name);
  object.at("seed").get_to(report.seed);
  object.at("episode").get_to(report.episode);
  object.at("commands").get_to(report.commands);
  object.at("seconds").get_to(report.seconds);
  object.at("disagreements").get_to(report.disagreements);
  object.at("before_shrinking").get_to(report.commands_before_shrinking);
  object.at("reproduce").get_to(report.reproduce);
  object.at("reach").get_to(report.reach);
  object.at("numbers").get_to(report.numbers);
  object.at("unreported").get_to(report.unreported);
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
