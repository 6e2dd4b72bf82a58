#pragma once

/// Visits every number, list and name of a scenario with its declared domain, wherever it stands:
/// what a change that several commands have to make together is written with.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "contract/declare.h"
#include "contract/scenario.h"
#include "properties/value_parts.h"

namespace kvfence {

/// Calls visit(member, domain) for each declared member of a struct, such as a configuration.
template <class Struct, class Visit>
void for_each_member_of(Struct& object, Visit&& visit) {
  for_each_field<std::remove_const_t<Struct>>(
      [&](const auto& declaration) { visit(object.*declaration.member, declaration.domain); });
}

/// The same for whichever command a variant holds.
template <class Command, class Visit>
void for_each_member_of_command(Command& command, Visit&& visit) {
  std::visit([&](auto& alternative) { for_each_member_of(alternative, visit); }, command);
}

/// Calls visit(member, domain, step) for each declared member of the configuration, then of each
/// command in order; behind a list of declared structs for each of their members. step counts from
/// 1; 0 is the configuration. ScenarioType may be const.
template <class ScenarioType, class Visit>
void for_each_member(ScenarioType& scenario, Visit&& visit) {
  std::size_t step = 0;
  const auto visit_member = [&](auto& member, Domain domain) {
    visit(member, domain, step);
    if constexpr (ListOfDeclaredRecords<std::remove_cvref_t<decltype(member)>>) {
      for (auto& record : member) {
        for_each_member_of(record, [&](auto& part, Domain of) { visit(part, of, step); });
      }
    }
  };
  for_each_member_of(scenario.config, visit_member);
  for (auto& each : scenario.steps) {
    ++step;
    for_each_member_of_command(each.command, visit_member);
  }
}

/// Calls visit(list, domain) for each list of numbers.
template <class ScenarioType, class Visit>
void for_each_list(ScenarioType& scenario, Visit&& visit) {
  for_each_member(scenario, [&](auto& member, Domain domain, std::size_t) {
    using Member = std::remove_cvref_t<decltype(member)>;
    if constexpr (std::is_same_v<Member, std::vector<std::uint32_t>>) visit(member, domain);
  });
}

/// Calls visit(number, domain, step) for each number, those in lists and their records included.
template <class ScenarioType, class Visit>
void for_each_number(ScenarioType& scenario, Visit&& visit) {
  for_each_member(scenario, [&](auto& member, Domain domain, std::size_t step) {
    using Member = std::remove_cvref_t<decltype(member)>;
    if constexpr (std::is_same_v<Member, std::uint32_t>) {
      visit(member, domain, step);
    } else if constexpr (std::is_same_v<Member, std::optional<std::uint32_t>>) {
      if (member) visit(*member, domain, step);
    } else if constexpr (std::is_same_v<Member, std::vector<std::uint32_t>>) {
      for (auto& number : member) visit(number, domain, step);
    } else if constexpr (ListOfRecords<Member> && !ListOfDeclaredRecords<Member>) {
      for_each_number_in(member, [&](std::uint32_t& number) { visit(number, domain, step); });
    }
  });
}

/// Calls visit(name, step) for each name of a request, those in lists included.
template <class ScenarioType, class Visit>
void for_each_request(ScenarioType& scenario, Visit&& visit) {
  for_each_member(scenario, [&](auto& member, Domain domain, std::size_t step) {
    using Member = std::remove_cvref_t<decltype(member)>;
    if constexpr (std::is_same_v<Member, std::string>) {
      if (domain == Domain::kRequest) visit(member, step);
    } else if constexpr (std::is_same_v<Member, std::vector<std::string>>) {
      if (domain != Domain::kRequests) return;
      for (auto& name : member) visit(name, step);
    }
  });
}

}  // namespace kvfence
