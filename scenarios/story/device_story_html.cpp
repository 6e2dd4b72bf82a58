/// A story of devices as a page: see device_story.h. The styles and the script around it are in
/// device_story.html, without `<`, `>` or `&`, so that the page is XML.

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "properties/report/xml_text.h"
#include "scenarios/replay/svg_writer.h"
#include "scenarios/story/device_story.h"
#include "scenarios/story/explain_picture.h"

namespace kvfence {

/// device_story.html, which CMake turns into a constant.
extern const char* const kStoryPage;

namespace {

// Pixels.
constexpr double kLeft = 76;
constexpr double kCommandTop = 8;
constexpr double kCommandHeight = 24;
constexpr double kLanesTop = 46;
constexpr double kLaneHeight = 56;
constexpr double kBarHeight = 26;
constexpr double kPageHeight = 24;
constexpr double kPagesGap = 20;
constexpr double kNotchWidth = 20;  ///< of a moment at which something short happens
constexpr double kBarWidth = 84;    ///< of a moment in which work runs
constexpr double kUnrunGap = 24;

std::string rectangle(double x, double y, double width, double height, std::string_view style) {
  return "<rect" + xml_attribute("x", x) + xml_attribute("y", y) + xml_attribute("width", width) +
         xml_attribute("height", height) + xml_attribute("class", style);
}

std::string text_at(double x, double y, std::string_view text, std::string_view style = {},
                    std::string_view anchor = "start") {
  return "<text" + xml_attribute("x", x) + xml_attribute("y", y) +
         (style.empty() ? "" : xml_attribute("class", style)) +
         xml_attribute("text-anchor", anchor) + ">" + escape_xml(text) + "</text>\n";
}

std::string line(double x1, double y1, double x2, double y2, std::string_view style) {
  return "<line" + xml_attribute("x1", x1) + xml_attribute("y1", y1) + xml_attribute("x2", x2) +
         xml_attribute("y2", y2) + xml_attribute("class", style) + "/>\n";
}

std::string titled(std::string shape, const std::string& title) {
  return shape + "><title>" + escape_xml(title) + "</title></rect>\n";
}

/// The picture: commands above, then lanes, then pages, over moments of different widths.
class Picture {
 public:
  explicit Picture(const DeviceStory& story) : story_(story), pages_(pages_of(story)) {
    place_moments();
    place_unrun();
  }

  std::string draw() {
    const double pages_top =
        kLanesTop + static_cast<double>(lanes_of(story_).size()) * kLaneHeight + kPagesGap;
    const double height = pages_top + static_cast<double>(pages_.size()) * kPageHeight + 14;
    out_ = "<svg xmlns=\"http://www.w3.org/2000/svg\"" + xml_attribute("width", width_) +
           xml_attribute("height", height) +
           xml_attribute("viewBox", "0 0 " + svg_number(width_) + " " + svg_number(height)) + ">\n";
    draw_commands(height);
    for (const StoryLane lane : lanes_of(story_)) {
      const double y = y_of(lane);
      out_ += line(kLeft, y, width_ - 10, y, "rule");
      out_ += text_at(kLeft - 10, y + 4, to_text(lane), "soft", "end");
    }
    for (const StoryOperation& operation : story_.operations) draw_link(operation);
    for (const StoryOperation& operation : story_.operations) draw(operation);
    for (const StoryMark& mark : story_.marks) draw(mark);
    for (std::size_t index = 0; index < story_.races.size(); ++index) draw_race(index);
    for (std::size_t index = 0; index < pages_.size(); ++index) {
      draw_page(pages_[index], pages_top + static_cast<double>(index) * kPageHeight);
    }
    return std::move(out_) + "</svg>\n";
  }

 private:
  struct Box {
    double x = 0;
    double width = 0;
  };

  void place_moments() {
    std::vector<double> widths(story_.end, kNotchWidth);
    for (const StoryOperation& operation : story_.operations) {
      if (operation.started != kNever) widths[operation.started] = kBarWidth;
    }
    double x = kLeft + 6;
    for (StoryMoment moment = 0; moment < story_.end; ++moment) {
      x_.push_back(x);
      x += widths[moment];
      // So that the number of a short command fits.
      const bool ends = std::any_of(story_.commands.begin(), story_.commands.end(),
                                    [&](const auto& c) { return c.end == moment + 1; });
      if (ends) x += 8;
    }
    x_.push_back(x);
    width_ = x + 64;
  }

  void place_unrun() {
    std::vector<double> next(lanes_of(story_).size(), x_.back() + kUnrunGap);
    for (const StoryOperation& operation : story_.operations) {
      if (operation.started != kNever) continue;
      double& x = next[index_of(operation.lane)];
      unrun_[&operation] = x;
      x += kBarWidth + 10;
      width_ = std::max(width_, x + 14);
    }
  }

  static double y_of(StoryLane lane) {
    return kLanesTop + (static_cast<double>(index_of(lane)) + 0.5) * kLaneHeight;
  }

  double middle(StoryMoment moment) const { return x_[moment] + kNotchWidth / 2; }

  Box box_of(const StoryOperation& operation) const {
    if (operation.started == kNever) return {unrun_.at(&operation), kBarWidth};
    const StoryMoment end = operation.ended == kNever ? story_.end : operation.ended;
    return {x_[operation.started] + 3, x_[end] - x_[operation.started] - 6};
  }

  void draw_commands(double height) {
    for (std::size_t index = 0; index < story_.commands.size(); ++index) {
      const StoryCommand& command = story_.commands[index];
      const double width = x_[command.end] - x_[command.begin];
      const std::string step = std::to_string(index);
      out_ += rectangle(x_[command.begin], kCommandTop, width, height - kCommandTop, "column") +
              xml_attribute("data-step", step) + "/>\n";
      out_ += line(x_[command.begin], kCommandTop, x_[command.begin], height - 8, "rule");
      out_ += "<g" + xml_attribute("class", "command") + xml_attribute("data-step", step) +
              "><title>" + escape_xml(command.text) + "</title>\n" +
              rectangle(x_[command.begin] + 1, kCommandTop, width - 2, kCommandHeight, "box") +
              "/>\n" + text_at(x_[command.begin] + 6, kCommandTop + 16, label(index, width - 8)) +
              "</g>\n";
    }
    if (!unrun_.empty()) {
      out_ += text_at(x_.back() + kUnrunGap, kCommandTop + 16, "never ran", "soft");
    }
  }

  /// As much of a command as fits.
  std::string label(std::size_t index, double width) const {
    const auto room = static_cast<std::size_t>(std::max(width / 6.7, 0.0));
    std::string text = std::to_string(index) + " " + story_.commands[index].text;
    if (text.size() <= room) return text;
    const std::string verb = text.substr(0, text.find(' ', text.find(' ') + 1));
    return verb.size() <= room ? verb : std::to_string(index);
  }

  /// From the call to where the work ran.
  void draw_link(const StoryOperation& operation) {
    const double x = middle(operation.enqueued);
    const Box box = box_of(operation);
    const double y = y_of(operation.lane) - kBarHeight / 2;
    out_ += "<path" + xml_attribute("class", "link") +
            xml_attribute("d", "M " + svg_number(x) + " " + svg_number(y_of(kHostLane)) + " C " +
                                   svg_number(x) + " " + svg_number(y - 10) + ", " +
                                   svg_number(box.x + 8) + " " + svg_number(y - 30) + ", " +
                                   svg_number(box.x + 8) + " " + svg_number(y)) +
            "/>\n";
  }

  void draw(const StoryOperation& operation) {
    const std::string title =
        operation.name + ": " + operation.function + ", " + touches_of(operation);
    const double x = middle(operation.enqueued);
    out_ += titled(rectangle(x - 5, y_of(kHostLane) - 5, 10, 10,
                             std::string("bar ") + std::string(to_text(operation.lane.stream))),
                   "enqueues " + title);
    const Box box = box_of(operation);
    const double y = y_of(operation.lane);
    std::string style = "bar " + std::string(to_text(operation.lane.stream));
    if (operation.started == kNever) style = "unrun";
    if (operation.is_racing) style += " racing";
    out_ += titled(rectangle(box.x, y - kBarHeight / 2, box.width, kBarHeight, style), title);
    out_ += text_at(box.x + box.width / 2, y + 4, operation.name, "", "middle");
  }

  void draw(const StoryMark& mark) {
    const double x = middle(mark.moment);
    const double y = y_of(mark.lane);
    const std::string title = to_text(mark.lane) + " " + to_text(story_, mark);
    if (mark.kind == StoryMark::Kind::kHostAccess) {
      const std::string style = mark.is_racing ? "bar host racing" : "bar host";
      out_ += titled(rectangle(x - 8, y - 11, 16, 22, style), title);
      out_ += text_at(x, y + 4, mark.is_write ? "W" : "R", "", "middle");
      return;
    }
    const std::string event = std::to_string(mark.event);
    std::string sign = "S";
    if (mark.kind == StoryMark::Kind::kRecorded) sign = "R" + event;
    if (mark.kind == StoryMark::Kind::kWaits) sign = "W" + event;
    // Beside the bars of the lane, which stand in its middle.
    const bool waits = mark.kind == StoryMark::Kind::kWaits;
    const double top = waits ? y - kBarHeight / 2 - 3 : y + kBarHeight / 2 + 11;
    out_ += line(x, y - 8, x, y + 8, "rule");
    out_ += "<g><title>" + escape_xml(title) + "</title>\n" +
            text_at(x, top, sign, "soft", "middle") + "</g>\n";
  }

  std::pair<double, double> place_of(const StoryParty& party) const {
    if (party.operation) {
      const StoryOperation& operation = story_.operations[*party.operation];
      const Box box = box_of(operation);
      return {box.x + box.width / 2, y_of(operation.lane)};
    }
    const StoryMoment moment = party.mark ? story_.marks[*party.mark].moment : 0;
    return {middle(moment), y_of(kHostLane)};
  }

  void draw_race(std::size_t index) {
    const StoryRace& race = story_.races[index];
    const auto [x1, y1] = place_of(race.first);
    const auto [x2, y2] = place_of(race.second);
    const double half = kBarHeight / 2;
    const double from = y1 < y2 ? y1 + half : y1 - half;
    const double to = y1 < y2 ? y2 - half : y2 + half;
    const double shift = 10.0 * static_cast<double>(index);
    out_ += "<g><title>" +
            escape_xml(deed_of(story_, race, true) + "; " + deed_of(story_, race, false) + ". " +
                       race.missing) +
            "</title>\n";
    // Beside the lower end, on the side that the line leaves free.
    const bool first_is_lower = y1 > y2;
    const double x = (first_is_lower ? x1 : x2) + shift;
    const bool leaves_to_the_right = first_is_lower ? x2 > x1 : x1 > x2;
    if (y1 != y2) out_ += line(x1 + shift, from, x2 + shift, to, "raceline");
    out_ += text_at(leaves_to_the_right ? x - 6 : x + 6,
                    y1 == y2 ? y1 - half - 5 : std::max(from, to) - 5,
                    "race " + std::to_string(index + 1), "racetext",
                    leaves_to_the_right ? "end" : "start") +
            "</g>\n";
  }

  void draw_page(const StoryPage& page, double y) {
    out_ += text_at(kLeft - 10, y + 15, to_text(page), "soft", "end");
    out_ += line(kLeft, y + kPageHeight - 1, x_.back(), y + kPageHeight - 1, "rule");
    const StoryContent* shown = nullptr;
    bool is_other = false;
    const auto finish = [&](double end) {
      if (!shown || shown->text == "nothing") return;
      const double begin = x_[story_.commands[shown->command].end];
      const std::string style = std::string("page") + (shown->is_torn ? " torn"
                                                       : is_other     ? " other"
                                                                      : "");
      const std::string title = to_text(page) + " = " + shown->text +
                                (shown->meaning.empty() ? "" : ": " + shown->meaning);
      const double width = std::max(end - begin, 26.0);
      out_ += titled(rectangle(begin - 6, y + 2, width, kPageHeight - 6, style), title);
      out_ += text_at(begin, y + 15, shown->text);
      is_other = !is_other;
    };
    for (const StoryContent& content : story_.contents) {
      if (content.page != page) continue;
      finish(x_[story_.commands[content.command].end] - 2);
      shown = &content;
    }
    finish(width_ - 14);
  }

  const DeviceStory& story_;
  std::vector<StoryPage> pages_;
  std::vector<double> x_;  ///< where each moment begins, and where the last ends
  std::map<const StoryOperation*, double> unrun_;
  double width_ = 0;
  std::string out_;
};

std::string item(bool is_racing, const std::string& text) {
  return std::string("<li") + (is_racing ? xml_attribute("class", "racing") : "") + ">" +
         escape_xml(text) + "</li>\n";
}

std::string item(const StoryEvent& event) {
  const char* const what = event.kind == StoryEvent::Kind::kBegins ? " begins"
                           : event.kind == StoryEvent::Kind::kEnds ? " is over"
                                                                   : "";
  return item(event.is_racing, to_text(event.lane) + ": " + event.text + what);
}

std::string commands_html(const DeviceStory& story) {
  const std::map<StoryMoment, StoryEvent> events = events_of(story);
  std::string html = "<h2>Commands</h2>\n<table>\n";
  for (std::size_t index = 0; index < story.commands.size(); ++index) {
    const StoryCommand& command = story.commands[index];
    html += "<tr" + xml_attribute("data-step", std::to_string(index)) + "><td class=\"number\">" +
            std::to_string(index) + "</td><td>" + escape_xml(command.text) +
            (command.answer.empty() ? "" : "<br/>-&gt; " + escape_xml(command.answer)) +
            "</td><td>";
    std::string happened;
    const auto end = events.lower_bound(command.end);
    for (auto at = events.lower_bound(command.begin); at != end; ++at) happened += item(at->second);
    for (const std::string& wrong : command.wrong_tokens) happened += item(true, wrong);
    if (!happened.empty()) html += "<ul>\n" + happened + "</ul>";
    html += "</td></tr>\n";
  }
  return html + "</table>\n";
}

std::string races_html(const DeviceStory& story) {
  std::string html;
  if (story.difference) {
    const Divergence& difference = *story.difference;
    html += "<p>Differs from the reference at command <code>" + std::to_string(difference.step) +
            "</code>: " + escape_xml(difference.message);
    if (!difference.field.empty()) {
      html += "<br/><code>" + escape_xml(difference.field) + "</code>: expected <code>" +
              escape_xml(difference.expected) + "</code>, found <code>" +
              escape_xml(difference.actual) + "</code>";
    }
    html += "</p>\n";
  }
  for (std::size_t index = 0; index < story.races.size(); ++index) {
    const StoryRace& race = story.races[index];
    html += "<div class=\"race\"><b>Race " + std::to_string(index + 1) + "</b> " +
            escape_xml(deed_of(story, race, true)) + "; " +
            escape_xml(deed_of(story, race, false)) + ". Nothing orders the two.<br/>" +
            escape_xml(race.missing) + "</div>\n";
  }
  for (const StoryCommand& command : story.commands) {
    for (const std::string& wrong : command.wrong_tokens) {
      html += "<div class=\"token\"><b>Wrong token</b> " + escape_xml(wrong) + "</div>\n";
    }
  }
  for (const std::string& misuse : story.misuses) {
    html += "<div class=\"race\"><b>Misuse</b> " + escape_xml(misuse) + "</div>\n";
  }
  if (!story.races.empty() || !story.misuses.empty()) return html;
  return html + "<p>Every two accesses to the same bytes, one a write, are ordered.</p>\n";
}

/// Lines that end with a sentence end a paragraph.
std::string comments_html(const DeviceStory& story) {
  std::string html;
  std::string paragraph;
  for (const std::string& comment : story.comments) {
    const std::size_t begin = comment.find_first_not_of(' ');
    if (begin == comment.npos) continue;
    paragraph += (paragraph.empty() ? "" : " ") + comment.substr(begin);
    if (comment.back() != '.' && &comment != &story.comments.back()) continue;
    html += "<p>" + escape_xml(std::exchange(paragraph, {})) + "</p>\n";
  }
  return paragraph.empty() ? html : html + "<p>" + escape_xml(paragraph) + "</p>\n";
}

}  // namespace

std::string story_html(const DeviceStory& story) {
  const std::size_t slash = story.file.find_last_of('/');
  const std::string name = slash == std::string::npos ? story.file : story.file.substr(slash + 1);
  std::string html = "<h1>" + escape_xml(name) + "</h1>\n";
  html += comments_html(story);
  html += "<p class=\"soft\">The " + story.subject + " " +
          (story.planted_bug.empty()
               ? std::string("as it is")
               : "with the planted bug <code>" + escape_xml(story.planted_bug) + "</code>") +
          ", <code>" + escape_xml(story.config) + "</code></p>\n";
  html += races_html(story);
  html += "<div class=\"picture\">\n" + Picture(story).draw() + "</div>\n";
  html +=
      "<p class=\"soft\">From left to right: the order of events, not time. A small "
      "square on the host's line is a call that enqueues work; the work is a bar in its "
      "stream where it ran. R1: event 1 is recorded, W1: the stream waits for it, S: the host sees "
      "an end, boxed W or R: the host writes or reads. Below, what each page holds: " +
      escape_xml(story.content_example + " is " + story.content_meaning) +
      ". Point at anything for more; click a command to mark it.</p>\n";
  html += commands_html(story);
  std::string page(kStoryPage);
  const auto fill = [&page](std::string_view place, const std::string& text) {
    page.replace(page.find(place), place.size(), text);
  };
  fill("{{title}}", escape_xml(name));
  fill("{{body}}", html);
  return page;
}

}  // namespace kvfence
