package telegram_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"

	"pilder/sim/telegram"
)

// An independent client, multipart without a length in every call: what suits
// only our own bot fails here.
func TestTheGoTelegramLibraryWorksAgainstIt(t *testing.T) {
	s := world(newClock())
	web := httptest.NewServer(s.Handler())
	defer web.Close()
	defer s.Close()
	b, err := bot.New(telegram.DefaultToken, bot.WithServerURL(web.URL)) // calls getMe
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	me, err := b.GetMe(ctx)
	if err != nil || me.ID != 100001 || me.Username != "pilder_demo_bot" || !me.IsBot {
		t.Fatalf("getMe: %+v %v", me, err)
	}

	m, err := b.SendMessage(ctx, &bot.SendMessageParams{
		ChatID: ana, Text: "👋 hola",
		Entities: []models.MessageEntity{{Type: models.MessageEntityTypeBold, Offset: 3, Length: 4}},
		ReplyMarkup: models.InlineKeyboardMarkup{InlineKeyboard: [][]models.InlineKeyboardButton{
			{{Text: "Sí", CallbackData: "y"}}}},
	})
	if err != nil || m.Text != "👋 hola" || len(m.Entities) != 1 || m.Entities[0].Offset != 3 {
		t.Fatalf("sendMessage: %+v %v", m, err)
	}
	edited, err := b.EditMessageText(ctx, &bot.EditMessageTextParams{
		ChatID: ana, MessageID: m.ID, Text: "¿seguro?",
		ReplyMarkup: models.InlineKeyboardMarkup{InlineKeyboard: [][]models.InlineKeyboardButton{
			{{Text: "Sí", CallbackData: "yy"}}}},
	})
	if err != nil || edited.ID != m.ID || edited.EditDate == 0 {
		t.Fatalf("editMessageText: %+v %v", edited, err)
	}
	_, err = b.EditMessageText(ctx, &bot.EditMessageTextParams{ChatID: ana, MessageID: m.ID + 50, Text: "x"})
	if !errors.Is(err, bot.ErrorBadRequest) || !strings.Contains(err.Error(), "message to edit not found") {
		t.Errorf("edit of nothing: %v", err)
	}

	query := s.PressLabel(ana, int64(m.ID), "Sí")
	ok, err := b.AnswerCallbackQuery(ctx, &bot.AnswerCallbackQueryParams{CallbackQueryID: query, Text: "Hecho"})
	if err != nil || !ok {
		t.Fatalf("answerCallbackQuery: %v %v", ok, err)
	}
	doc, err := b.SendDocument(ctx, &bot.SendDocumentParams{
		ChatID: ana, Document: &models.InputFileUpload{Filename: "informe.md", Data: strings.NewReader("# informe")}, Caption: "aquí",
	})
	if err != nil || doc.Document == nil || doc.Document.FileName != "informe.md" {
		t.Fatalf("sendDocument: %+v %v", doc, err)
	}
	file, err := b.GetFile(ctx, &bot.GetFileParams{FileID: doc.Document.FileID})
	if err != nil || file.FilePath == "" {
		t.Fatalf("getFile: %+v %v", file, err)
	}

	s.Fault(telegram.Fault{Kind: telegram.TooManyRequests, RetryAfter: 9})
	_, err = b.SendMessage(ctx, &bot.SendMessageParams{ChatID: bruno, Text: "x"})
	if limited := new(bot.TooManyRequestsError); !errors.As(err, &limited) || limited.RetryAfter != 9 {
		t.Errorf("429: %v", err)
	}
	if seen := s.Transcript(ana); len(seen) != 2 || seen[0].Text != "¿seguro?" || seen[1].Document == nil {
		t.Errorf("seen %+v", seen)
	}
	if v := s.Violations(); len(v) != 0 {
		t.Errorf("violations %q", v)
	}
}

// The library's own poller takes the updates and confirms them.
func TestTheGoTelegramPollerReceivesAndConfirms(t *testing.T) {
	s := world(newClock())
	web := httptest.NewServer(s.Handler())
	defer web.Close()
	defer s.Close()
	got := make(chan *models.Update, 4)
	b, err := bot.New(telegram.DefaultToken, bot.WithServerURL(web.URL), bot.WithDefaultHandler(
		func(_ context.Context, _ *bot.Bot, u *models.Update) { got <- u }))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() { b.Start(ctx); close(stopped) }()
	s.Say(ana, "/start hola")
	u := <-got
	if u.Message == nil || u.Message.From.ID != ana || u.Message.From.LanguageCode != "es" ||
		u.Message.Chat.Type != models.ChatTypePrivate || len(u.Message.Entities) != 1 || u.Message.Entities[0].Type != models.MessageEntityTypeBotCommand {
		t.Errorf("message %+v", u.Message)
	}
	s.Press(ana, 1, "y")
	if u := <-got; u.CallbackQuery == nil || u.CallbackQuery.Data != "y" || u.CallbackQuery.Message.InaccessibleMessage == nil {
		t.Errorf("tap %+v", u.CallbackQuery)
	}
	s.Send(ana, telegram.Upload{Name: "a.txt", Content: []byte("x")})
	if u := <-got; u.Message == nil || u.Message.Document == nil || u.Message.Document.FileName != "a.txt" {
		t.Errorf("file %+v", u.Message)
	}
	cancel()
	<-stopped
}
