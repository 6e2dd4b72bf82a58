#include "scenarios/svg_writer.h"

#include <cstdio>
#include <utility>

namespace kvfence {
namespace {

/// One digit behind the point is a tenth of a pixel.
std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f", value);
  return text;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char character : text) {
    switch (character) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += character;
    }
  }
  return out;
}

std::string attribute(std::string_view name, std::string_view value) {
  return " " + std::string(name) + "=\"" + escaped(value) + "\"";
}

std::string attribute(std::string_view name, double value) {
  return attribute(name, std::string_view(number(value)));
}

}  // namespace

SvgWriter::SvgWriter(double width, double height, std::string_view title) {
  out_ = "<svg xmlns=\"http://www.w3.org/2000/svg\"" + attribute("width", width) +
         attribute("height", height) +
         attribute("viewBox", "0 0 " + number(width) + " " + number(height)) +
         " font-family=\"sans-serif\" font-size=\"12\">\n<title>" + escaped(title) + "</title>\n";
  rectangle({0, 0}, width, height, "#ffffff");
}

void SvgWriter::line(SvgPoint from, SvgPoint to, std::string_view color, bool is_dashed) {
  out_ += "<line" + attribute("x1", from.x) + attribute("y1", from.y) + attribute("x2", to.x) +
          attribute("y2", to.y) + attribute("stroke", color) +
          (is_dashed ? " stroke-dasharray=\"6 4\"" : "") + "/>\n";
}

void SvgWriter::put_points(const std::vector<SvgPoint>& points) {
  out_ += " points=\"";
  for (std::size_t index = 0; index < points.size(); ++index) {
    if (index > 0) out_ += ' ';
    out_ += number(points[index].x) + "," + number(points[index].y);
  }
  out_ += '"';
}

void SvgWriter::polyline(const std::vector<SvgPoint>& points, std::string_view color) {
  out_ += "<polyline fill=\"none\" stroke-width=\"2\"" + attribute("stroke", color);
  put_points(points);
  out_ += "/>\n";
}

void SvgWriter::polygon(const std::vector<SvgPoint>& points, std::string_view fill) {
  out_ += "<polygon" + attribute("fill", fill);
  put_points(points);
  out_ += "/>\n";
}

void SvgWriter::circle(SvgPoint center, double radius, std::string_view fill) {
  out_ += "<circle" + attribute("cx", center.x) + attribute("cy", center.y) +
          attribute("r", radius) + attribute("fill", fill) + "/>\n";
}

void SvgWriter::rectangle(SvgPoint corner, double width, double height, std::string_view fill) {
  out_ += "<rect" + attribute("x", corner.x) + attribute("y", corner.y) +
          attribute("width", width) + attribute("height", height) + attribute("fill", fill) +
          "/>\n";
}

void SvgWriter::text(SvgPoint at, std::string_view text, Anchor anchor, double angle) {
  constexpr std::string_view kAnchors[] = {"start", "middle", "end"};
  out_ += "<text" + attribute("x", at.x) + attribute("y", at.y) +
          attribute("text-anchor", kAnchors[static_cast<int>(anchor)]) + attribute("fill", "#222");
  if (angle != 0) {
    out_ += attribute("transform",
                      "rotate(" + number(angle) + " " + number(at.x) + " " + number(at.y) + ")");
  }
  out_ += ">" + escaped(text) + "</text>\n";
}

std::string SvgWriter::finish() { return std::exchange(out_, {}) + "</svg>\n"; }

}  // namespace kvfence
