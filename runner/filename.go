package runner

import (
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of a name that is shown.
const (
	nameRunes     = 80
	extensionSize = 12 // with its dot
)

// CleanName makes a name that a person or an agent gave fit to be shown: the last part of a path, one line, nothing unseen
// or turning the direction of writing, none of the characters that file systems or markup give a meaning, at most 80
// characters with the extension kept. It is for reading only: no file is ever opened or made under it. Empty when nothing
// is left.
func CleanName(name string) string {
	name = strings.ToValidUTF8(name, "_")
	if i := strings.LastIndexAny(strings.TrimRight(name, `/\`), `/\`); i >= 0 {
		name = name[i+1:]
	}
	name = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r) || r == '\u2800': // the last is a blank of Braille
			return ' '
		case unicode.In(r, unicode.C, unicode.Zl, unicode.Zp, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector):
			return -1
		case strings.ContainsRune("/\\<>:\"|?*`\u2044\u2215\u29f8\uff0f\ufe68\uff3c\ufffd", r): // and what looks like a slash
			return '_'
		}
		return r
	}, name)
	name = strings.Trim(strings.Join(strings.Fields(name), " "), ". ")
	if utf8.RuneCountInString(name) <= nameRunes {
		return name
	}
	ext := path.Ext(name)
	if len(ext) > extensionSize {
		ext = ""
	}
	stem := []rune(strings.TrimSuffix(name, ext))
	return strings.TrimRight(string(stem[:nameRunes-utf8.RuneCountInString(ext)]), ". ") + ext
}

// extensions are those a file may keep. They tell a reader what to expect and make nothing runnable.
const extensions = "7z aac avif bmp csv doc docx eml gif gz heic htm html ics jpeg jpg json log m4a md mov mp3 mp4 msg odp ods odt " +
	"oga ogg opus pdf png ppt pptx rtf svg tar tgs tif tiff tsv txt vcf wav webm webp xls xlsx xml yaml yml zip"

// safeExtension is the extension, with its dot, of a file that gets a name of the house.
func safeExtension(kind, name string) string {
	ext := strings.ToLower(strings.TrimPrefix(path.Ext(CleanName(name)), "."))
	if slices.Contains(strings.Fields(extensions), ext) {
		return "." + ext
	}
	switch kind {
	case "photo":
		return ".jpg"
	case "voice":
		return ".ogg"
	case "audio":
		return ".mp3"
	case "video", "video_note", "animation":
		return ".mp4"
	case "sticker":
		return ".webp"
	}
	return ".bin"
}
