package telegram

// method performs a call and returns its result, and the description the
// server adds to a few successes. It runs with mu held, except getUpdates.
type method func(*Server, *call) (result any, note string, refusal *apiError)

// methods finds a method by its name in lower case (the server does not mind
// case) and says how the documentation spells it; nil for one not served.
func methods(name string) (spelled string, do method) {
	switch name {
	case "getme":
		return "getMe", (*Server).getMe
	case "getupdates":
		return "getUpdates", (*Server).getUpdates
	case "setwebhook":
		return "setWebhook", (*Server).setWebhook
	case "deletewebhook":
		return "deleteWebhook", (*Server).deleteWebhook
	case "getwebhookinfo":
		return "getWebhookInfo", (*Server).getWebhookInfo
	case "setmycommands":
		return "setMyCommands", (*Server).setMyCommands
	case "getmycommands":
		return "getMyCommands", (*Server).getMyCommands
	case "deletemycommands":
		return "deleteMyCommands", (*Server).deleteMyCommands
	case "sendmessage":
		return "sendMessage", (*Server).sendMessage
	case "senddocument":
		return "sendDocument", (*Server).sendDocument
	case "sendchataction":
		return "sendChatAction", (*Server).sendChatAction
	case "editmessagetext":
		return "editMessageText", (*Server).editMessageText
	case "editmessagecaption":
		return "editMessageCaption", (*Server).editMessageCaption
	case "editmessagereplymarkup":
		return "editMessageReplyMarkup", (*Server).editMessageReplyMarkup
	case "deletemessage":
		return "deleteMessage", (*Server).deleteMessage
	case "answercallbackquery":
		return "answerCallbackQuery", (*Server).answerCallbackQuery
	case "getfile":
		return "getFile", (*Server).getFile
	}
	return name, nil
}

func spelling(name string) string {
	spelled, _ := methods(name)
	return spelled
}
