#include "properties/core/scenario_members.h"

#include <optional>

#include "contract/core/declare.h"

#include "properties/core/simplify.h"

namespace kvfence {
namespace {

void for_each_member_of(const DeclaredObject& object,
                        const std::function<void(const MemberRef&)>& visit) {
  for (std::size_t index = 0; index < object.size(); ++index) {
    const MemberRef member = object[index];
    visit(member);
    for (const DeclaredObject& element : member.elements()) {
      for (std::size_t part = 0; part < element.size(); ++part) visit(element[part]);
    }
  }
}

/// The numbers of a list of records that are not declared, through the value that they print as.
void visit_numbers_of_value(const MemberRef& member,
                            const std::function<void(std::uint32_t&)>& visit) {
  const Value value = member.value();
  if (!value.get_if<Value::List>()) return;
  bool is_edited = false;
  const Value edited = map_integers(value, [&](std::int64_t integer) {
    auto number = static_cast<std::uint32_t>(integer);
    if (std::int64_t{number} != integer) return integer;
    visit(number);
    is_edited = is_edited || std::int64_t{number} != integer;
    return std::int64_t{number};
  });
  std::string expected;
  if (is_edited) member.assign(edited, expected);
}

}  // namespace

void for_each_member(const Scenario& scenario,
                     const std::function<void(const MemberRef&, std::size_t step)>& visit) {
  for_each_member_of(scenario.config.declared(),
                     [&](const MemberRef& member) { visit(member, 0); });
  for (std::size_t step = 0; step < scenario.steps.size(); ++step) {
    for_each_member_of(scenario.steps[step].command.declared(),
                       [&](const MemberRef& member) { visit(member, step + 1); });
  }
}

void for_each_list(
    const Scenario& scenario,
    const std::function<void(std::vector<std::uint32_t>& list, Domain, std::size_t step)>& visit) {
  for_each_member(scenario, [&](const MemberRef& member, std::size_t step) {
    if (auto* list = get_if<std::vector<std::uint32_t>>(member))
      visit(*list, member.domain(), step);
  });
}

void for_each_number(
    const Scenario& scenario,
    const std::function<void(std::uint32_t& number, Domain, std::size_t step)>& visit) {
  for_each_member(scenario, [&](const MemberRef& member, std::size_t step) {
    const Domain domain = member.domain();
    if (auto* number = get_if<std::uint32_t>(member)) {
      visit(*number, domain, step);
    } else if (auto* maybe = get_if<std::optional<std::uint32_t>>(member)) {
      if (*maybe) visit(**maybe, domain, step);
    } else if (auto* list = get_if<std::vector<std::uint32_t>>(member)) {
      for (std::uint32_t& element : *list) visit(element, domain, step);
    } else if (member.elements().empty()) {
      visit_numbers_of_value(member, [&](std::uint32_t& found) { visit(found, domain, step); });
    }
  });
}

void for_each_request(const Scenario& scenario,
                      const std::function<void(std::string& name, std::size_t step)>& visit) {
  for_each_member(scenario, [&](const MemberRef& member, std::size_t step) {
    if (auto* name = get_if<std::string>(member)) {
      if (member.domain() == Domain::kRequest) visit(*name, step);
    } else if (auto* names = get_if<std::vector<std::string>>(member)) {
      if (member.domain() != Domain::kRequests) return;
      for (std::string& each : *names) visit(each, step);
    }
  });
}

}  // namespace kvfence
